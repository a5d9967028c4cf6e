"""The 16-bit copies that autocast makes of weights, which autograd otherwise keeps until the backward pass."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

WORTH_IT = 1 << 25
"""Numbers in the matrices of a network from which on their copies are made twice: 64 MB of copies."""


class _Copied(NamedTuple):
    """A weight in place of its copy."""

    weight: Tensor
    dtype: torch.dtype
    is_turned: bool


@contextmanager
def copied_twice(is_on: bool) -> Iterator[None]:
    """While open inside autocast, autograd keeps weights in place of their copies, and copies them again when needed.

    Gradients are the same to the bit, because a weight does not change between the two passes.
    """
    if not is_on:
        yield
        return
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        with torch.autograd.graph.saved_tensors_hooks(_pack, _unpack):
            yield
    finally:
        torch.set_autocast_cache_enabled(before)


def _pack(saved: Tensor) -> Tensor | _Copied:
    node, is_turned = saved.grad_fn, False
    if node is not None and node.name() == "TBackward0":
        node, is_turned = node.next_functions[0][0], True
    if node is None or node.name() != "ToCopyBackward0":
        return saved
    weight = getattr(node.next_functions[0][0], "variable", None)
    return saved if weight is None else _Copied(weight.detach(), saved.dtype, is_turned)


def _unpack(kept: Tensor | _Copied) -> Tensor:
    if isinstance(kept, Tensor):
        return kept
    copy = kept.weight.to(kept.dtype)
    return copy.t() if kept.is_turned else copy
