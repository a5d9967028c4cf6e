"""Writes to a disk, and turns its errors into one line."""

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import safetensors
from torch import Tensor

from clearhead.errors import UserError, errno_of, reason, sizes
from clearhead.storage.manifest import sync

_DIAGNOSES = {
    errno.ENOSPC: "try freeing space there or another folder",
    errno.EDQUOT: "try freeing space there or another folder",
    errno.EFBIG: "try raising the file-size limit",
    errno.EACCES: "try another folder or its permissions",
    errno.EPERM: "try another folder or its permissions",
    errno.EROFS: "try a folder that is not read-only",
    errno.EIO: "try another disk",
}


@contextmanager
def written(place: Path) -> Iterator[None]:
    """Turns disk errors while `place` is written into UserError."""
    try:
        yield
    except (OSError, safetensors.SafetensorError) as error:
        raise UserError(f"{place}: expected to write it, got {reason(error)}; {remedy(error)}") from error


def remedy(error: Exception) -> str:
    """What to try after this error."""
    return _DIAGNOSES.get(errno_of(error) or 0, "try another folder")


def make_folder(run_folder: Path) -> None:
    """Make the folder if it is missing. It is on the disk when this returns."""
    if not run_folder.is_dir():
        run_folder.mkdir(parents=True, exist_ok=True)
        sync(run_folder.parent)


def size_of(tensor: Tensor) -> int:
    """The bytes of a whole tensor, even if processes hold parts of it."""
    return tensor.numel() * tensor.element_size()


def has_space(run_folder: Path, size: int) -> bool:
    """Returns True if the disk has 1.2 times `size` bytes free, where `size` is that of a checkpoint."""
    return shutil.disk_usage(run_folder).free >= _with_margin(size)


def check_space(run_folder: Path, size: int) -> None:
    """Raises UserError unless 1.2 times the `size` of a checkpoint, in bytes, is free."""
    free, wanted = shutil.disk_usage(run_folder).free, _with_margin(size)
    if free < wanted:
        need, left = sizes(wanted, free)
        raise UserError(f"{run_folder}: expected {need} free for a checkpoint, got {left}; {_DIAGNOSES[errno.ENOSPC]}")


def _with_margin(size: int) -> int:
    return -(-size * 12 // 10)  # Rounded up.


def temporary_name(place: Path) -> str:
    """The name of a folder until it is complete."""
    return f".tmp-{place.name}-{os.getpid()}-{secrets.token_hex(4)}"


def temporary_file(path: Path) -> Path:
    """The path of a small file until it is complete."""
    return path.with_name(f".{path.name}.tmp")


def replace_file(path: Path, content: bytes) -> None:
    """Write a small file: a crash leaves the old content or the new. Makes its folder if it is missing."""
    temporary = temporary_file(path)
    with written(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(content)
            sync(temporary)
            os.replace(temporary, path)  # noqa: PTH105 - one system call, one name to fail in tests
            sync(path.parent)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise
