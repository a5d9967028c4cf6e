"""Token tables in eight bits: table[id] = s n, a row of integers n and its scale s."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.model.mode import Part

LEVELS = 127
"""Integers on each side of 0."""
TINY = torch.finfo(torch.float32).tiny
TOGETHER = 1 << 18
"""Numbers that are rounded at once, so that a large matrix needs little memory beside itself."""


class RoundedTable(Part):
    """The rows of a token table with a symmetric scale for each: the largest number of a row becomes 127.

    It reads rows as the `nn.Embedding` does that it replaces, and cannot be trained.
    """

    integers: Tensor
    scale: Tensor

    def __init__(self, table: Tensor, dtype: torch.dtype) -> None:
        """Rounds a table, v d. `dtype` is the type of the rows that are returned."""
        super().__init__()
        self.num_embeddings, self.embedding_dim = table.shape
        integers, scale = rounded(table)
        self.register_buffer("integers", integers)
        self.register_buffer("scale", scale[:, None].to(dtype))

    def effective_weight(self) -> Tensor:
        """v d: the rows, computed anew. Writing to it changes nothing."""
        return self.integers * self.scale

    def forward(self, ids: Tensor) -> Tensor:
        """... -> ... d. Raises IndexError for an id without a row."""
        return F.embedding(ids, self.integers) * F.embedding(ids, self.scale)


Table = nn.Embedding | RoundedTable


def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """f d -> the integers, f d of int8, and the scale of each row, f of float32."""
    integers = torch.empty(weight.shape, dtype=torch.int8, device=weight.device)
    scale = torch.empty(len(weight), device=weight.device)
    at_once = max(1, TOGETHER // weight.shape[1])
    for rows, into, s in zip(*(x.split(at_once) for x in (weight, integers, scale)), strict=True):
        s.copy_((rows.abs().amax(1).float() / LEVELS).clamp_min_(TINY))
        into.copy_((rows / s[:, None]).round_())
    return integers, scale
