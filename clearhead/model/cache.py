"""Keys and values of the positions already seen, so that generating one more token costs one position."""

from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from clearhead.model.layout import Layout, Tokens


@dataclass
class KeyValues:
    """Keys and values of one attention, b h s k each; empty at first."""

    k: Tensor | None = None
    v: Tensor | None = None

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add new positions; returns all."""
        self.k = k if self.k is None else torch.cat([self.k, k], 2)
        self.v = v if self.v is None else torch.cat([self.v, v], 2)
        return self.k, self.v

    def select(self, index: Tensor) -> None:
        """Keep these rows of the batch, in this order."""
        if self.k is not None and self.v is not None:
            self.k, self.v = self.k[index], self.v[index]


@dataclass
class BlockCache:
    """What one decoder block keeps: its own past, and the memory's keys and values."""

    attn: KeyValues = field(default_factory=KeyValues)
    cross: KeyValues = field(default_factory=KeyValues)


@dataclass
class Cache:
    """What a decoder keeps between steps."""

    blocks: list[BlockCache]
    length: int = 0
    valid: Tensor | None = None
    """b s: which cached cells hold a token; None for all."""

    @classmethod
    def empty(cls, n_layers: int) -> Self:
        return cls([BlockCache() for _ in range(n_layers)])

    def extend(self, tokens: Tokens) -> tuple[Layout, Layout]:
        """Make room for these new tokens; returns the layout of the queries, and of all keys."""
        assert tokens.positions is None, "a cache counts the positions itself"
        assert tokens.documents is None, "a cache holds one document a row"
        b, t = tokens.grid
        device = tokens.ids.device
        if tokens.valid is not None or self.valid is not None:
            past = torch.ones(b, self.length, dtype=torch.bool, device=device) if self.valid is None else self.valid
            new = torch.ones(b, t, dtype=torch.bool, device=device) if tokens.valid is None else tokens.valid
            self.valid = torch.cat([past, new], 1)
            positions = (self.valid.long().cumsum(1) - 1).clamp(min=0)
        else:
            positions = torch.arange(self.length + t, device=device)[None]
        queries = Layout((b, t), positions[:, self.length :], start=self.length)
        self.length += t
        return queries, Layout((b, self.length), positions, valid=self.valid)

    def select(self, index: Tensor) -> None:
        """Keep these rows of the batch, in this order: how a beam follows its best hypotheses."""
        for block in self.blocks:
            block.attn.select(index)
            block.cross.select(index)
        if self.valid is not None:
            self.valid = self.valid[index]
