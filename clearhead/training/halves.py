"""bfloat16 copies of a network's matrices, made together once an update, and their gradients, written together.

Autocast copies each matrix by itself for each forward pass, and its gradient back. Between the values of a pass these
large tensors come from the system's allocator and return to it, which takes longer than the copies (docs/log.md).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.model import Transformer
from clearhead.model.attention import Attention
from clearhead.model.feedforward import FeedForward

MOST = 1 << 24
"""Most numbers that are copied. Larger networks spend their time in products, and would keep too much memory."""


class Halves:
    """Memory for the bfloat16 copies of the linear maps inside blocks, and for their gradients in float32.

    What is learned is the same to the bit: autocast would make the same copies.
    """

    def __init__(self, network: Transformer) -> None:
        parts = [m for m in network.modules() if isinstance(m, Attention | FeedForward)]
        linears = [m for part in parts for m in part.children() if type(m) is nn.Linear]
        self._places = [(m, name, p) for m in linears for name, p in m.named_parameters(recurse=False)]
        self._weights: list[nn.Parameter] = []
        self._copies: list[Tensor] = []
        self._gradients: list[Tensor] = []

    @property
    def n_copied(self) -> int:
        """The numbers of which there are copies since the last update."""
        return sum(p.numel() for p in self._weights)

    @contextmanager
    def used(self) -> Iterator[None]:
        """While open, the maps have their copies, and backward passes add to the gradients of the weights."""
        places = [(m, name, p) for m, name, p in self._places if _learns(p)]
        self._allocate(list({id(p): p for _, _, p in places}.values()))
        if not self._weights:
            yield
            return
        copies = _Copies.apply(self._weights, self._copies, self._gradients, *self._weights)
        found = {id(p): copy for p, copy in zip(self._weights, copies, strict=True)}
        try:
            for module, name, p in places:
                module._parameters[name] = found[id(p)]  # pyrefly: ignore[unsupported-operation]
            yield
        finally:
            for module, name, p in places:
                module._parameters[name] = p

    def _allocate(self, weights: list[nn.Parameter]) -> None:
        """Takes the memory for these weights, unless it is there or they are too many."""
        n = sum(p.numel() for p in weights)
        weights = weights if n <= MOST else []
        if [*map(id, weights)] == [*map(id, self._weights)]:
            return
        self._weights = weights
        self._copies, self._gradients = _like(weights, torch.bfloat16), _like(weights, torch.float32)


class _Copies(torch.autograd.Function):
    """The copies of the weights. Their gradients become those of the weights without a tensor of their own."""

    @staticmethod
    def forward(  # pyrefly: ignore[bad-override]
        ctx: Any,
        weights: Sequence[nn.Parameter],
        copies: Sequence[Tensor],
        gradients: Sequence[Tensor],
        *_: Tensor,
    ) -> tuple[Tensor, ...]:
        torch._foreach_copy_(copies, weights)
        ctx.weights, ctx.gradients = weights, gradients
        ctx.set_materialize_grads(False)
        return tuple(copy.view(copy.shape) for copy in copies)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[None, ...]:
        first: tuple[list[Tensor], list[Tensor]] = [], []
        later: tuple[list[Tensor], list[Tensor]] = [], []
        for weight, kept, gradient in zip(ctx.weights, ctx.gradients, gradients, strict=True):
            if gradient is not None:
                into, one = first if weight.grad is None else later
                into.append(kept)
                one.append(gradient)
                weight.grad = kept
        if first[0]:
            torch._foreach_copy_(*first)
        if later[0]:
            torch._foreach_add_(*later)
        return (None, None, None, *(None for _ in gradients))


def _learns(p: nn.Parameter) -> bool:
    return p.requires_grad and p.dtype == torch.float32 and p.device.type == "cpu"


def _like(weights: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Tensors of these shapes, one after another in memory."""
    sizes = [p.numel() for p in weights]
    pieces = torch.empty(sum(sizes), dtype=dtype).split(sizes)
    return [piece.view(p.shape) for piece, p in zip(pieces, weights, strict=True)]
