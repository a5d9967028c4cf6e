"""Values of forward passes at a few addresses, as fast as the network runs."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Protocol

import torch
from torch import Tensor

from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.model.mode import Evaluating
from clearhead.trace import edited


class Seen(Protocol):
    """The values of one forward pass by address, with the batch axis: a `Trace`, or what computes them on demand."""

    def __getitem__(self, address: str, /) -> Tensor: ...


class _Enough(Exception):
    """The last value has been seen, so the pass need not go on."""


def rows_at(network: Transformer, inputs: Sequence[Tokens], addresses: Collection[str]) -> dict[str, Tensor]:
    """n d: the value at each address for every real position of a batch, in order.

    The pass ends at the last of the values. Raises UserError for an address that the network's fast kernels do not
    have, and for a value that is not one vector for each position.
    """
    found: dict[str, Tensor] = {}

    def keep(address: str) -> Callable[[Tensor], Tensor]:
        def look(value: Tensor) -> Tensor:
            found[address] = value
            if len(found) == len(set(addresses)):
                raise _Enough
            return value

        return look

    with suppress(_Enough), Evaluating(network), torch.no_grad(), edited(network, {at: keep(at) for at in addresses}):
        network(*inputs)
    by_stack = dict(zip(network.stacks(), inputs, strict=True))
    return {at: _real(value, by_stack[at.split(".")[0]], at) for at, value in found.items()}


def _real(value: Tensor, tokens: Tokens, address: str) -> Tensor:
    """m d or b t d -> n d"""
    if value.ndim == 2 and tokens.rows is not None:
        return value[: len(tokens.rows)]
    if value.ndim != 3:
        raise UserError(f"{address}: expected one vector for each position, got shape {tuple(value.shape)}")
    return tokens.padded().real(value)


def sizes_of(tokens: Tokens, n: int) -> list[int]:
    """How many of the n real positions of a batch belong to each of its rows."""
    b = tokens.ids.shape[0]
    if tokens.valid is None:
        return [n // b] * b
    return [int(size) for size in tokens.valid.sum(1)]
