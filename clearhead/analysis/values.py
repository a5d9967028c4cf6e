"""Values of forward passes at a few addresses, as fast as the network runs."""

from collections.abc import Collection, Sequence
from typing import Protocol

import torch
from torch import Tensor

from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.model.mode import Evaluating
from clearhead.trace import recording


class Seen(Protocol):
    """The values of one forward pass by address, with the batch axis: a `Trace`, or what computes them on demand."""

    def __getitem__(self, address: str, /) -> Tensor: ...


def rows_at(network: Transformer, inputs: Sequence[Tokens], addresses: Collection[str]) -> dict[str, Tensor]:
    """n d: the value at each address for every real position of a batch, in order.

    The pass ends at the last of the values. Raises UserError for an address that the network's fast kernels do not
    have, and for a value that is not one vector for each position.
    """
    with Evaluating(network), torch.no_grad(), recording(network, addresses) as seen:
        network(*inputs)
    by_stack = dict(zip(network.stacks(), inputs, strict=True))
    return {at: _real(seen[at], by_stack[at.split(".")[0]], at) for at in addresses}


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
