"""Dropout that is cheap on a CPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor

ROW = 1024
"""Random words that are drawn, beside one more for each row of so many."""
ROWS = 64
"""Rows that are made at once: half a megabyte, which stays in a core's cache."""
ODD = (-7046029254386353131, -4417276706812531889)
"""Odd multipliers that mix bits: 0x9E3779B97F4A7C15 and 0xC2B2AE3D27D4EB4F."""
EVEN_BYTES = 0x00FF00FF00FF00FF

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

    On a CPU eight elements share a 64-bit word, a byte each, so p is rounded to a multiple of 1/256 (and the factor
    is that of the rounded p: the mean is exact). PyTorch's own draws one random number an element: 17% of a small
    model's step against 3% (docs/log).
    """
    if not training or p == 0.0:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling() or not _cheap.get():
        return F.dropout(x, p)
    dropped = min(max(round(p * 256), 1), 255)
    factor = 256 / (256 - dropped)
    factors = _factors(x.numel(), dropped, factor, x.dtype)
    return x * factors.view(x.shape)


def _factors(n: int, dropped: int, factor: float, dtype: torch.dtype) -> Tensor:
    """n numbers, 0 with probability dropped / 256, else `factor`."""
    n_words = -(-n // 8)
    is_short = dtype.itemsize == 2
    # Bytes of a word become 16-bit numbers four at a time: twice as quick as a cast. Their order does not matter.
    across, down = _drawn(min(n_words, ROW)), _drawn(-(-n_words // ROW))[:, None]
    parts = torch.empty(2 if is_short else 1, len(down), len(across), dtype=torch.int64)
    for start in range(0, len(down), ROWS):
        rows = parts[:, start : start + ROWS]
        words = _mixed(down[start : start + ROWS], across)
        words.view(torch.uint8).ge_(dropped)  # In place: a comparison that makes booleans takes ten times as long.
        if is_short:
            torch.bitwise_and(words, EVEN_BYTES, out=rows[0])
            torch.bitwise_and(words.bitwise_right_shift_(8), EVEN_BYTES, out=rows[1])
        else:
            rows[0] = words
    if not is_short:
        return parts.view(torch.uint8).view(-1)[:n].to(dtype).mul_(factor)
    bits = torch.tensor(factor, dtype=dtype).view(torch.int16)
    return parts.view(torch.int16).mul_(bits).view(dtype).view(-1)[:n]


def _drawn(n: int) -> Tensor:
    return torch.empty(n, dtype=torch.int64).random_(-(2**63), None)


def _mixed(down: Tensor, across: Tensor) -> Tensor:
    """r 1, c -> r c random words, any two independent. One generator draws few numbers, one by one.

    down_i ^ across_j is uniform, and independent for any two cells. A bijection then mixes the bits, so that no
    relation of the corners of a rectangle is left (the steps of a generator: Steele et al. 2014).
    """
    words = down ^ across
    words *= ODD[0]
    words ^= words >> 32
    words *= ODD[1]
    return words
