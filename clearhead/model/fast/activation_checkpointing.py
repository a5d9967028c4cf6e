"""Values of a large network that autograd does not keep, because the backward pass computes them again in little time.

This is selective recomputation (Korthikanti et al. 2022, 5): 16-bit copies of weights, results of activation
functions, and weights of causal attention (`model/fast/blocked_attention.py`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.brief import brief

WORTH_IT = 1 << 25
"""Numbers in the matrices of a network from which on values are computed again: 64 MB of copies."""

_is_on: ContextVar[bool] = ContextVar("selective checkpointing", default=False)


def is_checkpointing() -> bool:
    """Returns True if the backward pass is to compute such values of the present forward pass again."""
    return _is_on.get()


class _Kept(NamedTuple):
    """A tensor that is kept, and its version, which PyTorch itself does not compare under hooks."""

    tensor: Tensor
    version: int

    @classmethod
    def of(cls, tensor: Tensor) -> "_Kept":
        return cls(tensor, tensor._version)

    def unpacked(self) -> Tensor:
        if self.tensor._version != self.version:
            raise RuntimeError(
                f"one of the variables needed for gradient computation has been modified by an inplace operation:"
                f" {brief(self.tensor)} is at version {self.tensor._version}; expected version {self.version} instead"
            )
        return self.tensor


class _Copied(NamedTuple):
    """A weight in place of its copy."""

    weight: _Kept
    dtype: torch.dtype
    is_turned: bool


class _Activated(NamedTuple):
    """The node of an activation function, which keeps its input, in place of its result."""

    node: Any
    shape: torch.Size


AGAIN: dict[str, Callable[[Any], Tensor]] = {
    "GeluBackward0": lambda node: F.gelu(node._saved_self, approximate=node._saved_approximate),
    "SiluBackward0": lambda node: F.silu(node._saved_self),
}
"""Functions that keep their input, by their nodes in autograd's graph."""
ACTIVATIONS = {"gelu", "gelu_tanh", "silu"}
"""Their names in a config."""


def keep_activations(block: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Wraps a block that is recomputed as a whole, so that it keeps such values even in `selective_checkpointing`."""

    @wraps(block)
    def kept(*args: Any, **kwargs: Any) -> Tensor:
        token = _is_on.set(False)
        try:
            return block(*args, **kwargs)
        finally:
            _is_on.reset(token)

    return kept


@contextmanager
def selective_checkpointing(is_on: bool) -> Iterator[None]:
    """While open, autograd keeps what is needed to compute such values again in place of the values.

    Gradients are the same to the bit: the arithmetic is the same, and what has changed between the two passes is an
    error, as it is without.
    """
    if not is_on:
        yield
        return
    before, token = torch.is_autocast_cache_enabled(), _is_on.set(True)
    torch.set_autocast_cache_enabled(False)
    try:
        with torch.autograd.graph.saved_tensors_hooks(_pack, _unpack):
            yield
    finally:
        torch.set_autocast_cache_enabled(before)
        _is_on.reset(token)


def _pack(saved: Tensor) -> _Kept | _Copied | _Activated:
    if saved._version:  # Somebody wrote to it: it is no longer what its node computed.
        return _Kept.of(saved)
    node: Any = saved.grad_fn
    name = "" if node is None else node.name()
    above = node.next_functions[0][0] if node is not None and name in ("TBackward0", "ViewBackward0") else None
    made, made_by = (node, name) if above is None else (above, above.name())
    if made_by in AGAIN and name != "TBackward0":
        return _Activated(made, saved.shape)
    if made_by == "ToCopyBackward0" and name != "ViewBackward0":
        weight = getattr(made.next_functions[0][0], "variable", None)
        if weight is not None:
            return _Copied(_Kept.of(weight.detach()), saved.dtype, above is not None)
    return _Kept.of(saved)


def _unpack(kept: _Kept | _Copied | _Activated) -> Tensor:
    if isinstance(kept, _Kept):
        return kept.unpacked()
    if isinstance(kept, _Activated):
        with torch.no_grad():
            return AGAIN[kept.node.name()](kept.node).view(kept.shape)
    copy = kept.weight.unpacked().to(kept.dtype)
    return copy.t() if kept.is_turned else copy
