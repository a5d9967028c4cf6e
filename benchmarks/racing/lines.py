"""Rows of the page: ours to the fastest peer, and what share of the machine ours has."""

import time

import torch

from clearhead.config import Config

N_READS = 8
BYTES = 1 << 30


class Line(Config):
    """One comparison."""

    what: str
    """The task, and ours if there are several."""
    peer: str
    ratio: float
    """Our median over the peer's."""
    low: float
    """Lowest and highest ratio of a round."""
    high: float
    share: float | None = None
    """Of the ceiling, which is measured in the same run; None where there is none."""
    ceiling: str = ""
    """What limits it: matrix products or memory."""


def read_rate(threads: int) -> float:
    """Bytes a second of one pass over memory that no cache holds: the best of a few."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    numbers = torch.ones(BYTES // 4)
    best = float("inf")
    for _ in range(N_READS):
        began = time.perf_counter()
        numbers.sum()
        best = min(best, time.perf_counter() - began)
    torch.set_num_threads(before)
    return BYTES / best
