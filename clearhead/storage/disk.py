"""What a disk can refuse, in one line."""

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import safetensors
from torch import Tensor

from clearhead.errors import UserError, sizes
from clearhead.storage.manifest import errno_of, reason, sync

_DIAGNOSES = {
    errno.ENOSPC: "try freeing space there or another run folder",
    errno.EDQUOT: "try freeing space there or another run folder",
    errno.EFBIG: "try raising the file-size limit",
    errno.EACCES: "try another run folder or its permissions",
    errno.EPERM: "try another run folder or its permissions",
    errno.EROFS: "try a run folder that is not read-only",
    errno.EIO: "try another disk",
}


@contextmanager
def written(place: Path) -> Iterator[None]:
    """What goes wrong with the disk while `place` is written becomes UserError."""
    try:
        yield
    except (OSError, safetensors.SafetensorError) as error:
        raise UserError(f"{place}: expected to write a checkpoint, got {reason(error)}; {remedy(error)}") from error


def remedy(error: Exception) -> str:
    """What to try."""
    return _DIAGNOSES.get(errno_of(error) or 0, "try another run folder")


def make_folder(run_folder: Path) -> None:
    """Make the folder where there is none, on the disk when this returns."""
    if not run_folder.is_dir():
        run_folder.mkdir(parents=True, exist_ok=True)
        sync(run_folder.parent)


def size_of(tensor: Tensor) -> int:
    """Bytes of a tensor, all parts of it."""
    return tensor.numel() * tensor.element_size()


def check_space(run_folder: Path, size: int) -> None:
    """Nothing, if there is room for a checkpoint of `size` bytes and a fifth; else UserError."""
    free, wanted = shutil.disk_usage(run_folder).free, -(-size * 12 // 10)  # And a fifth, rounded up.
    if free < wanted:
        need, left = sizes(wanted, free)
        raise UserError(f"{run_folder}: expected {need} free for a checkpoint, got {left}; {_DIAGNOSES[errno.ENOSPC]}")


def temporary_name(place: Path) -> str:
    """What a folder is called until it is whole."""
    return f".tmp-{place.name}-{os.getpid()}-{secrets.token_hex(4)}"


def temporary_text(path: Path) -> Path:
    """Where a small file is until it is whole."""
    return path.with_name(f".{path.name}.tmp")


def replace_text(path: Path, text: str) -> None:
    """Write a small file that is, at any moment, the old or the new one; its folder is made where there is none."""
    temporary = temporary_text(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        sync(temporary)
        os.replace(temporary, path)  # noqa: PTH105 - one system call, one name to fail in tests
    except OSError as error:
        raise UserError(f"{path}: expected to write it, got {reason(error)}; try another folder") from None
