"""The devices of this machine, and its threads and allocator as clearhead uses them."""

import ctypes
import sys
from typing import Any

import torch

from clearhead.errors import UserError
from clearhead.recipe.training import Training

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -2, -3, -8
"""glibc's mallopt parameters."""


def prepare_machine(config: Training) -> torch.device:
    """Set threads and allocator for a training run; returns its device."""
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    if config.keep_freed_memory:
        keep_freed_memory()
    return device_named(config.device)


def device_named(name: str) -> torch.device:
    """The device of this name, such as cuda or cuda:1; auto is a GPU if there is one.

    Raises UserError for a device that this machine does not have.
    """
    if name == "auto":
        return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"device: expected auto, cpu, cuda or mps, got {name!r}") from None
    n_devices = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    if (device.index or 0) >= n_devices.get(device.type, 0):
        raise UserError(f"device: expected one that this machine has, got {name!r}; try --device cpu")
    return device


def keep_freed_memory() -> None:
    """Let glibc keep freed memory for the next step instead of returning it page by page (docs/log)."""
    mallopt = _glibc("mallopt")
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 1 << 30)
        mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)
        mallopt(M_TOP_PAD, 1 << 26)
        # One arena for all threads: each of a server's threads would otherwise keep freed memory of its own.
        mallopt(M_ARENA_MAX, 1)


def hand_back_freed_memory() -> None:
    """Let glibc return free memory to the system, such as what the start-up probe took."""
    trim = _glibc("malloc_trim")
    if trim is not None:
        trim(0)


def _glibc(name: str) -> Any:
    """A function of glibc; None on systems without it."""
    if sys.platform != "linux":
        return None
    try:
        return getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return None
