"""What this machine does best: device, allocator, threads, precision."""

import ctypes
import sys
import time

import torch

from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.recipe.training import Training
from clearhead.tasks.task import Batch, Task

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
"""glibc's mallopt parameters."""
TOLERANCE = 0.02
"""Relative difference of the first loss up to which the faster precision is trusted."""


def prepare_machine(config: Training) -> torch.device:
    """Threads and allocator as a training run wants them; returns the device."""
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    keep_freed_memory()
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
    if sys.platform == "linux":
        try:
            mallopt = ctypes.CDLL(None).mallopt
        except (OSError, AttributeError):
            return
        mallopt(M_MMAP_THRESHOLD, 1 << 30)
        mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)
        mallopt(M_TOP_PAD, 1 << 26)


def precision_for(network: Transformer, batch: Batch, config: Training, task: Task) -> str:
    """The precision asked for; for auto the faster of fp32 and bf16 on a batch, if the losses agree."""
    if config.precision != "auto":
        return config.precision
    device = batch.labels.device
    seconds: dict[str, float] = {}
    losses: dict[str, float] = {}
    network.eval()
    for precision in ("fp32", "bf16", "fp32", "bf16"):
        _wait(device)
        start = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            total, count = task.loss(network, batch)
        (total / count).backward()
        losses[precision] = total.item() / count
        _wait(device)
        seconds[precision] = min(seconds.get(precision, float("inf")), time.perf_counter() - start)
        network.zero_grad(set_to_none=True)
    agree = abs(losses["bf16"] - losses["fp32"]) <= TOLERANCE * abs(losses["fp32"])
    return "bf16" if agree and seconds["bf16"] < seconds["fp32"] else "fp32"


def _wait(device: torch.device) -> None:
    """Until the device has done what it was given: a clock must not measure what came before."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
