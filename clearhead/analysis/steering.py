"""Steering: a direction of a network's values, added to them with a strength."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.analysis.features.training import Inputs
from clearhead.analysis.passes import rows_at, sizes_of
from clearhead.brief import brief
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.trace import Address, Edit, add


@dataclass(frozen=True, eq=False)
class Direction:
    """A vector at an address of a network, such as the difference of the means of two sets of texts."""

    __repr__ = brief

    at: str
    vector: Tensor
    """d"""

    def edit(self, strength: float = 1.0) -> dict[str, Edit]:
        """The edit that adds strength * vector at every position, for `trace` and `edited`."""
        return {self.at: add(self.vector * strength)}


def difference_of_means(network: Transformer, positive: Inputs, negative: Inputs, *, at: str) -> Direction:
    """mean(x | positive) - mean(x | negative), x the value at `at`   (Rimsky et al. 2024, 3)

    A text counts by the mean over its positions. In a decoder, positions before which all texts are alike, such as that
    of a start token, are left out: they are alike, but would count more in shorter texts.
    Raises UserError for an address that is none of a whole value, and for a set without texts.
    """
    where = Address.parse(at)
    if where.index:
        raise UserError(f"{at}: expected the address of a whole value, got one with an index; leave it out")
    if where.path.split(".")[0] not in network.stacks():
        raise UserError(f"{at}: expected an address that begins with {' or '.join(network.stacks())}")
    for name, inputs in (("positive", positive), ("negative", negative)):
        if not inputs:
            raise UserError(f"{name}: expected texts, got none")
    stack = where.path.split(".")[0]
    index = list(network.stacks()).index(stack)
    alike = _alike([batch[index] for batch in (*positive, *negative)]) if stack == "decoder" else 0
    means = [_mean(network, inputs, where.path, index, alike) for inputs in (positive, negative)]
    return Direction(where.path, means[0] - means[1])


def _mean(network: Transformer, inputs: Inputs, at: str, index: int, alike: int) -> Tensor:
    """The mean of the texts' means."""
    means: list[Tensor] = []
    for batch in inputs:
        rows = rows_at(network, batch, {at})[at].float()
        means += [own[min(alike, len(own) - 1) :].mean(0) for own in rows.split(sizes_of(batch[index], len(rows)))]
    return torch.stack(means).mean(0)


def _alike(batches: Sequence[Tokens]) -> int:
    """The tokens with which all texts begin."""
    texts = [row[valid] for tokens in batches for row, valid in zip(tokens.ids, tokens.valid_cells, strict=True)]
    n = min(map(len, texts))
    together = torch.stack([text[:n] for text in texts])
    return int((together == together[0]).all(0).cumprod(0).sum())
