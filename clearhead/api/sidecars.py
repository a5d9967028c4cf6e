"""Files beside the weights of other libraries: image and sound processors, and files that nothing reads."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from clearhead.api.folders import CONFIG
from clearhead.checkpoints.families.generation import FILE as GENERATION
from clearhead.checkpoints.families.shared import SENTENCE_FILES
from clearhead.checkpoints.weights import modules
from clearhead.checkpoints.weights.documents import INDEX, MODEL, Index, read_json
from clearhead.checkpoints.weights.legacy import BIN, BIN_INDEX
from clearhead.config import FrameInput, LearnedGrid, ModelConfig, PatchInput, RotaryGrid, WaveInput
from clearhead.storage.manifest import MANIFEST, verify
from clearhead.text import formats

if TYPE_CHECKING:
    from clearhead.data.images import ImageProcessor
    from clearhead.data.samples import WaveProcessor
    from clearhead.data.sounds import SoundProcessor

PREPROCESSOR = "preprocessor_config.json"


def images_of(folder: Path, config: ModelConfig) -> "ImageProcessor | None":
    """The image processor of this model, if the folder has one."""
    path = folder / PREPROCESSOR
    reads = config.first.input
    if not path.is_file() or isinstance(reads, FrameInput | WaveInput):
        return None
    from clearhead.data.images import ImageProcessor, read_preprocessor

    n_channels = reads.n_channels if isinstance(reads, PatchInput) else None
    settings = read_preprocessor(read_json(path), where=str(path))
    return ImageProcessor(settings, n_channels=n_channels, where=str(path))


def sounds_of(folder: Path, config: ModelConfig) -> "SoundProcessor | WaveProcessor | None":
    """The sound processor of this model, if it reads sounds and the folder has one."""
    path, reads = folder / PREPROCESSOR, config.first.input
    if path.is_file() and isinstance(reads, WaveInput):
        from clearhead.data import samples

        return samples.WaveProcessor(samples.read_preprocessor(read_json(path), where=str(path)))
    if not path.is_file() or not isinstance(reads, FrameInput):
        return None
    from clearhead.data.sounds import SoundProcessor, read_preprocessor

    return SoundProcessor(read_preprocessor(read_json(path), where=str(path)), shape=reads.shape, where=str(path))


def sized(folder: Path, config: ModelConfig) -> ModelConfig:
    """The config for pictures as the folder's image processor makes them, where positions in a grid allow other sizes.

    Their width stays another than their height, or one that patches do not divide, for the network to refuse.
    """
    stack, path = config.encoder, folder / PREPROCESSOR
    if stack is None or not isinstance(stack.input, PatchInput) or not path.is_file():
        return config
    if not isinstance(stack.positions, LearnedGrid | RotaryGrid):
        return config
    from clearhead.data.images import read_preprocessor

    size, reads = read_preprocessor(read_json(path), where=str(path)).output, stack.input
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
    names = {CONFIG, GENERATION, PREPROCESSOR, *weights_files(network), *formats.read_folder(network)}
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
