"""What a run asks of the machine: device, threads, allocator."""

import ctypes
import sys
from collections.abc import Callable

import torch

from clearhead.errors import UserError
from clearhead.recipe.training import Training

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -2, -3, -8
"""glibc's mallopt parameters."""


def prepare_machine(config: Training) -> torch.device:
    """Threads and allocator as a training run wants them; returns the device."""
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    if config.keep_freed_memory:
        keep_freed_memory()
    return device_of(config)


def device_of(config: Training) -> torch.device:
    """The device that a configuration asks for; UserError where this machine has none."""
    if config.device != "auto":
        available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
        if not available[config.device]:
            raise UserError(f"device={config.device}: expected one this machine has, got none; try --device cpu")
        return torch.device(config.device)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def keep_freed_memory() -> None:
    """Have glibc keep freed memory for the next step instead of handing it back page by page (docs/log.md)."""
    mallopt = _glibc("mallopt")
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 1 << 30)
        mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)
        mallopt(M_TOP_PAD, 1 << 26)
        # What one thread has freed is for all: a server's threads would each ask for memory of their own.
        mallopt(M_ARENA_MAX, 1)


def hand_back_freed_memory() -> None:
    """Have glibc hand back what is free now: what trying things out has taken need not stay for good."""
    trim = _glibc("malloc_trim")
    if trim is not None:
        trim(0)


def _glibc(name: str) -> Callable[..., int] | None:
    """A function of the C library, where that has it."""
    if sys.platform != "linux":
        return None
    try:
        return getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return None
