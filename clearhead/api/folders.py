"""The files of a model's folder: runs and checkpoints, processor files, and files that nothing reads."""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue, ValidationError

from clearhead.checkpoints.families import family_of, preset
from clearhead.checkpoints.families.generation import FILE as GENERATION
from clearhead.checkpoints.families.gguf import content_of, described
from clearhead.checkpoints.families.shared import SENTENCE_FILES
from clearhead.checkpoints.weights import modules
from clearhead.checkpoints.weights.documents import ADAPTER, CONFIG_LIMIT, INDEX, MODEL, Index, read_json
from clearhead.checkpoints.weights.gguf import GgufFile, gguf_in
from clearhead.checkpoints.weights.hub import is_path, locate, nearest
from clearhead.checkpoints.weights.legacy import BIN, BIN_INDEX
from clearhead.config import ModelConfig
from clearhead.config.adapter import AdapterConfig
from clearhead.config.inputs import FrameInput, GridInput, PatchInput, TokenInput, WaveInput
from clearhead.config.positions import LearnedGrid, RotaryGrid
from clearhead.errors import UserError, refuse
from clearhead.model import Transformer
from clearhead.recipe import ModelChoice, explain, merge
from clearhead.recipe.contract import FILE as CONTRACT
from clearhead.recipe.contract import LONGEST, Contract
from clearhead.recipe.generation import GenerationConfig
from clearhead.storage import checkpoints
from clearhead.storage.manifest import MANIFEST, verify
from clearhead.storage.tensors import model_tensors
from clearhead.text import formats
from clearhead.text.tokenizers import Tokenizer

if TYPE_CHECKING:
    from clearhead.data.images import ImageProcessor
    from clearhead.data.sounds import SoundProcessor, WaveProcessor

_log = logging.getLogger("clearhead")

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
TRAINED = ("mean.safetensors", "training.safetensors")
"""The files of a checkpoint with the adapters apart, the first one if there are both. `WEIGHTS` contains the sums."""
PROGRESS = {
    "step": "Updates",
    "n_tokens": "Tokens",
    "seconds": "Seconds of training",
    "best_score": "Best validation score",
    "precision": "Precision",
}


def model_folder(folder: Path) -> Path:
    """The checkpoint of a folder: itself, or the best checkpoint of a run, otherwise its newest.

    Raises UserError if there is none.
    """
    if not folder.exists():
        raise UserError(f"{folder}: expected a folder with a model, found nothing; {nearest(str(folder))}")
    if (folder / CONFIG).exists() and (folder / MANIFEST).exists():
        return folder
    choice = checkpoints.best(folder)
    if choice is not None and not (choice / CONFIG).exists():
        choice = checkpoints.best(choice) or checkpoints.latest(choice)
    if choice is not None:
        return choice
    if folder.is_dir() and not any(folder.iterdir()):
        raise UserError(f"{folder}: expected a folder with a model, got an empty one; check the path")
    newest = checkpoints.latest(folder) if folder.is_dir() else None
    if newest is None:
        raise UserError(
            f"{folder}: expected a folder with a model, or a run with checkpoints, found neither;"
            " give one with config.json, or one that `clearhead train` or `clearhead demo` wrote"
        )
    return newest


def own_files(network: Transformer, generation: GenerationConfig) -> checkpoints.Checkpoint:
    """Config and weights in the form of a training run."""
    return checkpoints.Checkpoint({WEIGHTS: model_tensors(network)}, {CONFIG: model_json(network.config, generation)})


def contract_in(folder: Path, tokenizer: Tokenizer | None) -> Contract:
    """The contract of a folder that `Model.save` wrote. A warning says where the tokenizer's settings contradict it."""
    path = folder / CONTRACT
    if not path.is_file():
        return Contract()
    contract = Contract.read(read_json(path, limit=CONFIG_LIMIT), path)
    stated = None if tokenizer is None else tokenizer.settings.get(LONGEST, contract.max_length)
    if isinstance(stated, int) and contract.max_length is not None and stated > contract.max_length:
        _log.warning(
            "%s:max_length: %d tokens, as in training, not the %d of tokenizer_config.json:%s",
            path, contract.max_length, stated, LONGEST,
        )  # fmt: skip
    return contract


def training_facts(saved: checkpoints.Checkpoint) -> dict[str, JsonValue]:
    """The facts about its training that a checkpoint holds, for a model card."""
    progress = saved.json.get("train.json", {})
    return {title: progress[name] for name, title in PROGRESS.items() if progress.get(name) is not None}


def model_json(
    config: ModelConfig, generation: GenerationConfig, adapter: AdapterConfig | None = None, *, base: str | None = None
) -> dict[str, JsonValue]:
    """The content of config.json; `base` is the model that the adapter is of."""
    adapts = {} if adapter is None else {"adapter": adapter.model_dump(mode="json"), "base": base}
    return {
        "clearhead": 1,
        "model": config.model_dump(mode="json"),
        "generation": generation.model_dump(mode="json"),
        **adapts,
    }


def read_config(content: Mapping[str, Any], *, where: str) -> tuple[ModelConfig, GenerationConfig]:
    """The inverse of `model_json`. Raises UserError for a content that does not fit."""
    version = content.get("clearhead") if isinstance(content, Mapping) else None
    if version != 1:
        raise UserError(f"{where}: expected a clearhead model of format 1, got {version!r}; try a newer clearhead")
    try:
        return ModelConfig.model_validate(content["model"]), GenerationConfig.model_validate(content["generation"])
    except (KeyError, ValidationError) as error:
        raise UserError(
            explain(error, where) if isinstance(error, ValidationError) else f"{where}: no {error}"
        ) from None


def read_adapter(content: Mapping[str, Any], *, where: str) -> tuple[AdapterConfig | None, str | None]:
    """The adapter of a config.json, and the name of the model that it is of; None twice without adapters."""
    if content.get("adapter") is None:
        return None, None
    try:
        return AdapterConfig.model_validate(content["adapter"]), content.get("base")
    except ValidationError as error:
        raise UserError(explain(error, where)) from None


def architecture(choice: ModelChoice, vocab_size: int) -> ModelConfig:
    """The preset that a recipe names, with its changes and the tokenizer's vocabulary."""
    tables = preset(choice.preset).model_dump(mode="json")
    for stack, changes in {"encoder": choice.encoder, "decoder": choice.decoder}.items():
        if tables[stack] is None:
            if changes:
                raise UserError(f"model.{stack}: preset {choice.preset!r} has no {stack}; try model.stacks")
            continue
        tables[stack] = merge(merge(tables[stack], choice.stacks), changes)
        reads = tables[stack]["input"]
        if isinstance(reads, dict) and reads.get("kind") == TokenInput(vocab_size=1).kind:
            reads["vocab_size"] = vocab_size
    if tables["pictures"] is None and choice.pictures:
        raise UserError(f"model.pictures: preset {choice.preset!r} reads text alone; try preset captioner")
    tables["pictures"] = merge(tables["pictures"], choice.pictures) if choice.pictures else tables["pictures"]
    tables["head"] = merge(tables["head"], choice.head)
    tables["init"] = merge(tables["init"], choice.init)
    try:
        return ModelConfig.model_validate(tables)
    except ValidationError as error:
        raise UserError(explain(error, "model")) from None


def named_config(name: str) -> ModelConfig:
    """The architecture of a preset, or of the model in a folder. Reads no weights."""
    folder = Path(name)
    if not folder.exists():
        if "/" in name or is_path(name):
            raise UserError(
                f"{name}: expected a folder with a model, or an architecture by name, found neither; {nearest(name)}"
            )
        return preset(name)
    if (folder / ADAPTER).is_file():
        base = read_json(folder / ADAPTER, limit=CONFIG_LIMIT).get("base_model_name_or_path")
        return named_config(str(locate(str(base))))
    if (file := gguf_in(folder)) is not None:
        document, _ = described(content_of(GgufFile.open(file)))
        return family_of(document, where=str(file)).read(document, where=str(file))[0]
    path = (folder if (folder / CONFIG).is_file() else model_folder(folder)) / CONFIG
    content = read_json(path, limit=CONFIG_LIMIT)
    if "clearhead" in content:
        return read_config(content, where=str(path))[0]
    return family_of(content, where=str(path)).read(content, where=str(path))[0]


PREPROCESSOR, PROCESSOR = "preprocessor_config.json", "processor_config.json"


def images_of(folder: Path, config: ModelConfig) -> "ImageProcessor | None":
    """The image processor of this model, if it reads pictures and the folder has one."""
    reads = config.first.input if config.pictures is None else config.pictures.reads
    if not isinstance(reads, PatchInput | GridInput) or (read := _image_settings(folder)) is None:
        return None
    from clearhead.data.images import ImageConfig, ImageProcessor
    from clearhead.data.preprocessor import ANOTHER

    document, where = read
    own, seen = ImageConfig.of(document, where=where), config.pictures
    patches = (reads.patch_size, seen.projector.join) if seen is not None and seen.any_size else (None, None)
    if (got := (own.patch_size, own.merge_size)) != patches:
        raise refuse(f"{where}:patch_size, merge_size", f"{patches}, as in the network", f"{got}", ANOTHER)
    return ImageProcessor(own, n_channels=reads.n_channels, where=where)


def _image_settings(folder: Path) -> tuple[Mapping[str, JsonValue], str] | None:
    """The settings of an image processor, and where they stand: in a file of their own, or in that of a processor."""
    if (path := folder / PREPROCESSOR).is_file():
        return read_json(path), str(path)
    own = read_json(path).get("image_processor") if (path := folder / PROCESSOR).is_file() else None
    return (own, f"{path}:image_processor") if isinstance(own, Mapping) else None


def sounds_of(folder: Path, config: ModelConfig) -> "SoundProcessor | WaveProcessor | None":
    """The sound processor of this model, if it reads sounds and the folder has one."""
    path, reads = folder / PREPROCESSOR, config.first.input
    if not path.is_file() or not isinstance(reads, FrameInput | WaveInput):
        return None
    from clearhead.data import sounds

    document, where = read_json(path), str(path)
    if isinstance(reads, WaveInput):
        return sounds.WaveProcessor(sounds.WaveConfig.read(document, where=where))
    return sounds.SoundProcessor(sounds.SoundConfig.read(document, where=where), shape=reads.shape, where=where)


def sized(folder: Path, config: ModelConfig) -> ModelConfig:
    """The config for pictures as the folder's image processor makes them, where positions in a grid allow other sizes.

    If the width differs from the height, or patches do not divide it, the config stays as it is, and the network
    refuses such pictures.
    """
    stack, path = config.encoder, folder / PREPROCESSOR
    if stack is None or not isinstance(stack.input, PatchInput) or not path.is_file():
        return config
    if not isinstance(stack.positions, LearnedGrid | RotaryGrid):
        return config
    from clearhead.data.images import ImageConfig

    size, reads = ImageConfig.of(read_json(path), where=str(path)).output, stack.input
    if size is None or size.height != size.width or size.height % reads.patch_size:
        return config
    reads = PatchInput.model_validate({**dict(reads), "image_size": size.height})
    return ModelConfig.model_validate({**dict(config), "encoder": stack.model_copy(update={"input": reads})})


# --- files that are not read ----------------------------------------------------------------------------------------


def unread(folder: Path) -> list[str]:
    """The files of a model's folder that `load` does not read, by their paths in it, sorted.

    A folder whose name begins with a dot counts as one file.
    """
    read = _read_by_load(folder)
    return sorted(name for path in _files(folder) if (name := path.relative_to(folder).as_posix()) not in read)


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.name.startswith("."):
            yield from _files(path)
        else:
            yield path


def _read_by_load(folder: Path) -> set[str]:
    """The paths of the files that `load` reads."""
    sealed = {MANIFEST, *verify(folder, others=True).files} if (folder / MANIFEST).is_file() else set[str]()
    if (folder / CONFIG).is_file() and "clearhead" in read_json(folder / CONFIG):
        return sealed
    listed = modules.listed(folder)
    network = modules.network_folder(folder)
    within = network.relative_to(folder)
    names = {CONFIG, GENERATION, PREPROCESSOR, PROCESSOR, *weights_files(network), *formats.read_folder(network)}
    read = {(within / name).as_posix() for name in names}
    if listed:
        texts = modules.texts_file(network, SENTENCE_FILES)
        read |= {modules.MODULES, modules.SETTINGS}
        read |= {texts.relative_to(folder).as_posix()} if texts else set()
        for module in listed[1:]:
            names = {modules.CONFIG, *weights_files(folder / module.path)}
            read |= {(Path(module.path) / name).as_posix() for name in names}
    return read | sealed


def weights_files(folder: Path) -> list[str]:
    """The files of weights that `load` reads."""
    for whole, index, suffix in ((MODEL, INDEX, ".safetensors"), (BIN, BIN_INDEX, ".bin")):
        if (folder / whole).is_file():
            return [whole]
        if (folder / index).is_file():
            return [index, *Index.read(folder / index, suffix=suffix).shards]
    return []
