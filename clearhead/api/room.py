"""Checks that a folder's weights fit into memory, from file sizes and headers, before any weight is read."""

import zipfile
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from clearhead.api.pretrained import common_dtype
from clearhead.api.sidecars import weights_files
from clearhead.errors import OutOfMemory, is_memory
from clearhead.machine.room import gigabytes
from clearhead.planning.fit import require_weights

TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
BROKEN = (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError)
"""The errors of a broken file, which its reader explains later."""


def check_load(folder: Path, *, dtype: torch.dtype | None, device: torch.device, int8: bool) -> None:
    """Raises OutOfMemory unless the weights of this folder fit into memory in this type and on this device.

    Weights in their stored type are mapped. They take addresses, but only memory that the kernel can reclaim.
    """
    try:
        files = [folder / name for name in weights_files(folder) if (folder / name).is_file()]
        sizes = {file: file.stat().st_size for file in files}
        # Only archives can be mapped to memory.
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
        # The kernel refuses to map a file larger than all memory for writing, even without a write.
        raise OutOfMemory(
            f"{folder}: expected weights that this machine can map into memory, got {gigabytes(sum(sizes.values()))};"
            " try a smaller model"
        ) from None
    target = dtype or common_dtype(tensors)
    allocated = sum(n * target.itemsize for kind, n in tensors if kind != target)
    if int8:
        allocated += sum(n for _, n in tensors)
    require_weights(folder, cpu, allocated=allocated)
    if device.type != "cpu":
        require_weights(folder, device, allocated=sum(n * target.itemsize for _, n in tensors))


def stored(file: Path) -> Iterator[tuple[torch.dtype, int]]:
    """Type and size of each tensor of floating-point numbers, from the header of a file."""
    with safe_open(file, framework="pt") as tensors:
        for name in tensors.keys():  # noqa: SIM118 - no mapping
            found = tensors.get_slice(name)
            if found.get_dtype() in TYPES:
                yield TYPES[found.get_dtype()], torch.Size(found.get_shape()).numel()
