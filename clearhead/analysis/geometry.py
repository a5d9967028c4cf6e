"""Geometry of vectors: neighbours in the token table."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.brief import brief
from clearhead.config import Continuous
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.model.linear import effective_weight


@dataclass(frozen=True)
class Neighbours:
    """Tokens whose vectors point the same way, nearest first."""

    __repr__ = brief

    ids: Tensor
    """k"""
    cosines: Tensor
    """k: between -1 and 1."""


def token_table(network: Transformer, stack: str | None = None) -> Tensor:
    """The token table, v d, of the named stack (the last one if None). Raises UserError if it reads none."""
    stacks = network.stacks()
    name = stack or list(stacks)[-1]
    if name not in stacks:
        raise UserError(f"stack {name!r}: expected {' or '.join(stacks)}")
    found = stacks[name]
    if isinstance(reads := found.config.input, Continuous):
        raise UserError(f"token table: expected a stack that reads tokens, got one that reads {reads.medium}s")
    return effective_weight(found.lookup).detach()


def neighbours(table: Tensor, of: int | Tensor, *, k: int = 10, exclude: Sequence[int] = ()) -> Neighbours:
    """The k rows of `table`, v d, with the largest cosine(row, of). `of` is a vector, d, or a token.

    The token itself is left out, and those in `exclude`, such as king, man and woman. A zero vector has the cosine 0.
    """
    exclude = (*exclude, of) if isinstance(of, int) else exclude
    for token in exclude:
        if not 0 <= token < len(table):
            raise UserError(f"token {token}: expected a number below {len(table)}")
    of = table[of] if isinstance(of, int) else of
    if of.shape != table.shape[1:]:
        raise UserError(f"neighbours: expected a vector of {table.shape[1]} numbers, got shape {list(of.shape)}")
    cosines = F.cosine_similarity(table.float(), of.to(table.device).float()[None], dim=-1)
    left_out = torch.tensor(sorted(set(exclude)), dtype=torch.long, device=table.device)
    ranked = cosines.index_fill(0, left_out, float("-inf"))
    ids = ranked.topk(min(k, len(table) - len(left_out))).indices
    return Neighbours(ids, cosines[ids].clamp(-1, 1))
