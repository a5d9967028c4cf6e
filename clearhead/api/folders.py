"""Our own folders: runs and their checkpoints, and the architecture that a recipe or a name asks for."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import JsonValue, ValidationError

from clearhead.checkpoints.families import family_of, preset
from clearhead.checkpoints.families.gguf import content_of, described
from clearhead.checkpoints.weights.documents import CONFIG_LIMIT, read_json
from clearhead.checkpoints.weights.elsewhere import ADAPTER
from clearhead.checkpoints.weights.gguf_file import GgufFile, gguf_in
from clearhead.checkpoints.weights.hub import is_path, locate, nearest
from clearhead.config import ModelConfig, TokenInput
from clearhead.config.adapter import AdapterConfig
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.recipe import ModelChoice, explain, merge
from clearhead.recipe.contract import FILE as CONTRACT
from clearhead.recipe.contract import LONGEST, Contract
from clearhead.recipe.generation import GenerationConfig
from clearhead.storage import checkpoints
from clearhead.storage.manifest import MANIFEST
from clearhead.storage.tensors import model_tensors
from clearhead.text.tokenizers import Tokenizer

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
    """The checkpoint of a folder: itself, or the best one, otherwise the newest, of a run, which it may only name."""
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
    found = Contract.read(read_json(path, limit=CONFIG_LIMIT), path)
    said = None if tokenizer is None else tokenizer.settings.get(LONGEST, found.max_length)
    if isinstance(said, int) and found.max_length is not None and said > found.max_length:
        _log.warning(
            "%s:max_length: %d tokens, as in training, not the %d of tokenizer_config.json:%s",
            path, found.max_length, said, LONGEST,
        )  # fmt: skip
    return found


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
    """The adapter of a config.json with the name of the model that it is of; none of a model without adapters."""
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
