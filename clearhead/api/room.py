"""Whether a folder's weights fit into memory, from the sizes of its files and their headers: before any is read."""

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from clearhead.api.folders import CONFIG, read_config
from clearhead.errors import OutOfMemory, is_memory
from clearhead.planning.fit import require_weights
from clearhead.planning.room import gigabytes
from clearhead.recipe import merge
from clearhead.tasks.registry import validate
from clearhead.training.fitting import check_model
from clearhead.training.ranks import Ranks
from clearhead.weights.documents import CONFIG_LIMIT, INDEX, MODEL, Index, read_json
from clearhead.weights.legacy import BIN, BIN_INDEX

Stored = tuple[torch.dtype, int]
"""The type of a tensor, and how many numbers it has."""
TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
BROKEN = (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError)
"""What reading a broken file comes to: whoever reads it in earnest says what is wrong with it."""


def check_load(folder: Path, *, dtype: torch.dtype | None, device: torch.device, int8: bool) -> None:
    """Raise OutOfMemory unless the weights of this folder fit into memory in this type and on this device.

    Weights in the type that they are stored in are mapped: they take addresses, but no memory that the kernel could not
    use for something else.
    """
    try:
        files = [file for file in weight_files(folder) if file.is_file()]
        sizes = {file: file.stat().st_size for file in files}
        # A file that is no archive cannot be mapped.
        whole = [file for file in files if file.suffix == ".bin" and not zipfile.is_zipfile(file)]
    except BROKEN:
        return
    cpu = torch.device("cpu")
    copied = sum(sizes[file] for file in whole)
    require_weights(folder, cpu, allocated=copied, mapped=sum(sizes.values()) - copied)
    try:
        tensors = [one for file in files if file.suffix == ".safetensors" for one in stored(file)]
    except BROKEN:
        return
    except RuntimeError as error:
        if not is_memory(error):
            return
        # The kernel maps no file for writing that is larger than all memory, even where nobody writes.
        raise OutOfMemory(
            f"{folder}: expected weights that this machine can map into memory, got {gigabytes(sum(sizes.values()))};"
            " try a smaller model"
        ) from None
    target = dtype or common_type(tensors)
    allocated = sum(n * target.itemsize for kind, n in tensors if kind != target)
    if int8:  # A token table is no matrix of a layer; the largest tensor is one, if there is one.
        allocated += sum(n for _, n in tensors) - max((n for _, n in tensors), default=0)
    require_weights(folder, cpu, allocated=allocated)
    if device.type != "cpu":
        require_weights(folder, device, allocated=sum(n * target.itemsize for _, n in tensors))


def check_resume(folder: Path, recipe: str, changes: Mapping[str, object], ranks: Ranks) -> None:
    """Raise OutOfMemory unless the run in this folder can be trained here. Asked before its checkpoint is verified.

    `recipe` is the name of its recipe's file. Several processes are asked once they are arranged, after that.
    """
    if ranks.size > 1:
        return
    try:
        newest = max(path for path in folder.glob("step-*") if path.is_dir())
        tables = merge(read_json(newest / recipe, limit=CONFIG_LIMIT), {"training": changes})
        training = validate(tables, where=str(newest / recipe)).training
        config, _ = read_config(read_json(newest / CONFIG, limit=CONFIG_LIMIT), where=str(newest / CONFIG))
    except BROKEN:
        return
    check_model(config, training, ranks)


def weight_files(folder: Path) -> list[Path]:
    """The files that `load` would read weights from."""
    for single, index, suffix in ((MODEL, INDEX, ".safetensors"), (BIN, BIN_INDEX, ".bin")):
        if (folder / single).is_file():
            return [folder / single]
        if (folder / index).is_file():
            return [folder / file for file in Index.read(folder / index, suffix=suffix).shards]
    return []


def stored(file: Path) -> Iterator[Stored]:
    """What the header says of the tensors of floating numbers."""
    with safe_open(file, framework="pt") as tensors:
        for name in tensors.keys():  # noqa: SIM118 - no mapping
            found = tensors.get_slice(name)
            if found.get_dtype() in TYPES:
                yield TYPES[found.get_dtype()], torch.Size(found.get_shape()).numel()


def common_type(tensors: Sequence[Stored]) -> torch.dtype:
    """The type that most of the numbers are stored in."""
    totals = {kind: sum(n for other, n in tensors if other == kind) for kind, _ in tensors}
    return max(totals, key=lambda kind: totals[kind], default=torch.float32)
