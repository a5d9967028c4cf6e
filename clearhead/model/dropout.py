"""Dropout that is cheap on a CPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor

_cheap: ContextVar[bool] = ContextVar("cheap dropout", default=True)


@contextmanager
def cheap_dropout(is_on: bool) -> Iterator[None]:
    """While open, selects whether `dropout` shares its random draws or is PyTorch's own."""
    before = _cheap.get()
    _cheap.set(is_on)
    try:
        yield
    finally:
        _cheap.set(before)


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """x * keep / P(keep), keep drawn anew for each element   (Srivastava et al. 2014)

    On a CPU eight elements share one 64-bit draw, a byte each, so p is rounded to a multiple of 1/256 (and the factor
    is that of the rounded p: the mean is exact). PyTorch's own draws one random number an element: 17% of a small
    model's step against 3% (docs/log.md).
    """
    if not training or p == 0.0:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling() or not _cheap.get():
        return F.dropout(x, p)
    dropped = min(max(round(p * 256), 1), 255)
    words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
    # In place on bytes: a comparison that makes booleans takes ten times as long.
    keep = words.view(torch.uint8)[: x.numel()].view(x.shape).ge_(dropped)
    return x * keep.to(x.dtype).mul_(256 / (256 - dropped))
