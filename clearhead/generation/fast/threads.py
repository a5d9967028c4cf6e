"""The number of threads that makes one step of decoding quickest."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, local

import torch
from torch import nn

from clearhead.model import Transformer
from clearhead.model.fast.autotune import Run, autotune, recall_tuned
from clearhead.model.fast.packing import WORTH_PACKING
from clearhead.model.linear import LinearMap

LARGEST = 1 << 26
"""Numbers of the largest matrix that is timed."""

_open: list[int] = []
"""The number before the first block of `using` that is open, once for each open block."""
_inside = local()
_lock = Lock()


def threads_of(network: Transformer, rows: int, *, measure: bool) -> int:
    """The threads for a step of so many rows: PyTorch's own number, or 1 where its products are quicker alone.

    Without `measure`, only what was measured before counts.
    """
    own = _own_number()
    maps = {
        (type(module).__name__, module.out_features, module.in_features): module
        for module in network.modules()
        if isinstance(module, nn.Linear | LinearMap)
        and WORTH_PACKING <= module.out_features * module.in_features <= LARGEST
    }
    if own == 1 or not maps or next(network.parameters()).device.type != "cpu":
        return own
    rows = 1 << (rows - 1).bit_length()

    def with_threads(n: int) -> Run:
        dtype = next(network.parameters()).dtype
        inputs = [(module, torch.ones(rows, module.in_features, dtype=dtype)) for module in maps.values()]

        def run() -> None:
            with using(n):
                for module, x in inputs:
                    module(x)

        return run

    shapes = ", ".join(f"{kind} {out} x {width}" for kind, out, width in sorted(maps))
    ways = {str(n): lambda n=n: with_threads(n) for n in (own, 1)}
    question = f"threads for {rows} rows of {shapes}"
    return int((autotune(question, ways) if measure else recall_tuned(question, ways)) or own)


@contextmanager
def using(n: int) -> Iterator[None]:
    """Makes PyTorch compute with n threads in this thread, while the block is open.

    PyTorch gives a new thread the number that was set last. So a thread that starts while another one is in a block
    takes the number before that block for its own.
    """
    before, depth = _own_number(), getattr(_inside, "depth", 0)
    if n == before == torch.get_num_threads():
        yield
        return
    with _lock:
        _open.append(_open[0] if _open else before)
    _inside.depth = depth + 1
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _inside.depth = depth
        with _lock:
            _open.pop()


def _own_number() -> int:
    """The threads of PyTorch in this thread, as if no other thread were in a block."""
    with _lock:
        return _open[0] if _open and not getattr(_inside, "depth", 0) else torch.get_num_threads()
