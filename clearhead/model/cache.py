"""Keys and values, or states, of the positions already seen, so that generating one more token costs one position."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.brief import brief
from clearhead.model.layout import Layout, Tokens, axes_of
from clearhead.trace import tracing

LEAST_ROOM = 32
"""Cells of a cache that first grows; they double."""


@dataclass
class KeyValues(ABC):
    """Keys and values of one attention, b h s k each; empty at first, and 0 in padding."""

    __repr__ = brief

    k: Tensor | None = None
    v: Tensor | None = None
    cells: tuple[Tensor, Tensor] | None = None

    @abstractmethod
    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Adds new positions; returns the keys and values of all."""

    def select(self, index: Tensor) -> None:
        """Keeps these rows of the batch, in this order."""
        if self.k is not None and self.v is not None:
            self.k, self.v, self.cells = self.k[index].contiguous(), self.v[index].contiguous(), None

    def move(self, rows: Tensor, sources: Tensor) -> None:
        """Copies row sources[i] to row rows[i]; the other rows stay unchanged."""
        if self.k is None or self.v is None:
            return
        if self.cells is None or tracing():  # A trace may keep these.
            self.k, self.v, self.cells = self.k.clone(), self.v.clone(), None
        # Whole rows of cells are copied faster than the filled part of each head, unless much of them is empty.
        is_full = self.cells is not None and 3 * self.k.shape[2] >= 2 * self.cells[0].shape[2]
        for past in self.cells if self.cells is not None and is_full else (self.k, self.v):
            past.index_copy_(0, rows, past.index_select(0, sources))


class GrowingKeyValues(KeyValues):
    """Keys and values that are views of cells with room for more.

    A new position is written into the next cell. If no cell is left, everything is copied into twice the room.
    """

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if self.k is None or self.v is None or k.requires_grad or tracing():
            # Cross-attention appends only once. Values that gradients need or a trace keeps must not be overwritten.
            self.k = k if self.k is None else torch.cat([self.k, k], 2)
            self.v = v if self.v is None else torch.cat([self.v, v], 2)
            self.cells = None
            return self.k, self.v
        length, end = self.k.shape[2], self.k.shape[2] + k.shape[2]
        if self.cells is None or end > self.cells[0].shape[2]:
            room = max(LEAST_ROOM, 1 << (end - 1).bit_length())
            self.cells = _moved(self.k, room), _moved(self.v, room)
        keys, values = self.cells
        keys[:, :, length:end] = k
        values[:, :, length:end] = v
        self.k, self.v = keys[:, :, :end], values[:, :, :end]
        return self.k, self.v

    def cut(self, length: int) -> None:
        """Keeps the first positions. The next one is written over what follows them."""
        if self.k is not None and self.v is not None:
            self.k, self.v = self.k[:, :, :length], self.v[:, :, :length]


def _moved(past: Tensor, room: int) -> Tensor:
    """b h s k -> b h room k, the past first. No inference tensor, because a trace may begin between two steps."""
    b, h, length, width = past.shape
    with torch.inference_mode(False):
        cells = torch.empty(b, h, room, width, dtype=past.dtype, device=past.device)
    cells[:, :, :length] = past
    return cells


@dataclass
class State:
    """What a mixer keeps of all positions so far: tensors of one size, b ... each; none at first."""

    __repr__ = brief

    values: tuple[Tensor, ...] = ()
    is_fixed: bool = False
    """Whether each step writes into the same memory."""

    def keep(self, *values: Tensor) -> None:
        """Replaces what is kept."""
        if not self.is_fixed:
            self.values = values
            return
        for own, value in zip(self.values, values, strict=True):
            own.copy_(value)

    def select(self, index: Tensor) -> None:
        """Keeps these rows of the batch, in this order."""
        self.values = tuple(value[index] for value in self.values)

    def move(self, rows: Tensor, sources: Tensor) -> None:
        """Copies row sources[i] to row rows[i]; the other rows stay unchanged."""
        self.keep(*(value.index_copy(0, rows, value.index_select(0, sources)) for value in self.values))


@dataclass
class BlockCache:
    """The cache of one decoder block: keys and values of its own past and of the memory, or a mixer's state."""

    __repr__ = brief

    attn: KeyValues = field(default_factory=GrowingKeyValues)
    cross: KeyValues = field(default_factory=GrowingKeyValues)
    mix: State = field(default_factory=State)


@dataclass
class Cache(ABC):
    """The state that a decoder keeps between steps."""

    __repr__ = brief

    blocks: list[BlockCache]
    length: int = 0
    valid: Tensor | None = None
    """b s: which cached cells hold a token; None for all."""
    shift: Tensor | None = None
    """b 1: what a place is beyond the tokens before it, as pictures count by their sides; None for nothing."""

    @property
    def tensors(self) -> list[Tensor]:
        """The keys, values and states of the text."""
        kept = ((block.attn.k, block.attn.v, *block.mix.values) for block in self.blocks)
        return [x for block in kept for x in block if x is not None]

    def placed(self, positions: Tensor) -> Tensor:
        """The positions as the pictures before them shift them."""
        return positions if self.shift is None else positions + self.shift

    @abstractmethod
    def extend(self, tokens: Tokens) -> tuple[Layout, Layout]:
        """Makes room for these new tokens; returns the layouts of the queries and of all keys."""

    def select(self, index: Tensor, memory: Tensor | None = None) -> None:
        """Keeps these rows of the batch in this order, as beam search does for its best hypotheses.

        `memory` selects rows of the memory's keys and values, if several rows of the batch share one memory.
        """
        for block in self.blocks:
            block.attn.select(index)
            block.cross.select(index if memory is None else memory)
            block.mix.select(index)
        if self.valid is not None:
            self.valid = self.valid[index]
        if self.shift is not None:
            self.shift = self.shift[index]


class GrowingCache(Cache):
    """A cache that grows with each step. The tokens of the first step may be packed."""

    @classmethod
    def empty(cls, n_layers: int) -> Self:
        return cls([BlockCache() for _ in range(n_layers)])

    def extend(self, tokens: Tokens) -> tuple[Layout, Layout]:
        assert tokens.documents is None, "a cache holds one document a row"
        assert tokens.rows is None or not self.length, "what comes later is not packed"
        b, t = tokens.grid
        device = tokens.ids.device
        if tokens.valid is not None or self.valid is not None:
            past = torch.ones(b, self.length, dtype=torch.bool, device=device) if self.valid is None else self.valid
            self.valid = torch.cat([past, tokens.valid_cells], 1)
            positions = (self.valid.long().cumsum(1) - 1).clamp(min=0)
        else:
            positions = torch.arange(self.length + t, device=device)[None]
        positions = self.placed(positions)
        here = positions[:, self.length :]
        if tokens.positions is not None:  # Of pictures, counted from 0.
            n, new = positions[:, -1:] + 1, t if tokens.valid is None else tokens.valid.sum(1, keepdim=True)
            here = tokens.positions + n - new
            ends = torch.stack(axes_of(here)).amax(0) + 1
            ends = ends if tokens.valid is None else ends * tokens.valid
            self.shift = self.placed(ends.amax(1, keepdim=True) - n)
        groups = tokens.groups
        queries = Layout((b, t), here, start=self.length, valid=tokens.valid, rows=tokens.rows, groups=groups)
        groups = None if groups is None else F.pad(groups, (self.length, 0))
        self.length += t
        return queries, Layout((b, self.length), positions, valid=self.valid, rows=tokens.rows, groups=groups)

    def cut(self, length: int) -> None:
        """Keeps the first positions, exactly as they were before the others were read."""
        assert length <= self.length
        for block in self.blocks:
            assert isinstance(block.attn, GrowingKeyValues)
            assert length == self.length or not block.mix.values, "a state cannot be taken back"
            block.attn.cut(length)
        if self.valid is not None:
            self.valid = self.valid[:, :length]
        self.length = length


# --- every step of the same shapes ----------------------------------------------------------------------------------


@dataclass
class FixedKeyValues(KeyValues):
    """Keys and values in a fixed number of cells. `append` writes cell `at` and returns all cells."""

    __repr__ = brief

    at: Tensor = field(kw_only=True)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        assert self.k is not None
        assert self.v is not None
        self.k.index_copy_(2, self.at, k)
        self.v.index_copy_(2, self.at, v)
        return self.k, self.v


@dataclass
class FixedCache(Cache):
    """A cache of fixed size, so that one recording serves every step.

    It takes one token at a time and masks the cells beyond the text. The caller must not exceed the size.
    """

    __repr__ = brief

    at: Tensor = field(kw_only=True)
    """1: the cell last filled."""

    @classmethod
    def of(cls, past: Cache, room: int) -> Self:
        """A copy of a cache with this many cells; the cache itself does not change."""
        assert past.length < room
        at = torch.tensor([past.length - 1], device=past.tensors[0].device)
        blocks: list[BlockCache] = []
        for block in past.blocks:
            attn: KeyValues = block.attn
            if attn.k is not None and attn.v is not None:
                k, v = _moved(attn.k, room), _moved(attn.v, room)
                # Masked, but 0 times their content must be 0.
                k[:, :, past.length :], v[:, :, past.length :] = 0, 0
                attn = FixedKeyValues(k, v, (k, v), at=at)
            state = State(tuple(map(torch.clone, block.mix.values)), is_fixed=True)
            blocks.append(BlockCache(attn, block.cross, state))
        valid = past.valid
        if valid is not None:
            valid = torch.cat([valid, valid.new_ones(len(valid), room - past.length)], 1)
        return cls(blocks, room, valid, past.shift, at=at)

    def growing(self) -> GrowingCache:
        """The same positions in a cache that grows, which takes the cells over."""
        length = int(self.at) + 1
        blocks: list[BlockCache] = []
        for block in self.blocks:
            attn: KeyValues = block.attn
            if attn.cells is not None:
                k, v = (cell[:, :, :length] for cell in attn.cells)
                attn = GrowingKeyValues(k, v, attn.cells)
            blocks.append(BlockCache(attn, block.cross, State(block.mix.values)))
        return GrowingCache(blocks, length, None if self.valid is None else self.valid[:, :length], self.shift)

    def extend(self, tokens: Tokens) -> tuple[Layout, Layout]:
        b, t = tokens.grid
        assert t == 1, "one token a row"
        assert tokens.valid is None
        assert tokens.positions is None, "what comes later has no pictures"
        self.at.add_(1)
        cells = torch.arange(self.length, device=self.at.device)[None]
        valid = (cells <= self.at).expand(b, -1)
        positions = cells
        if self.valid is not None:
            valid = valid & self.valid
            positions = (self.valid.long().cumsum(1) - 1).clamp(min=0)
        positions = self.placed(positions)
        queries = Layout((b, 1), positions.index_select(1, self.at), start=self.length - 1)
        return queries, Layout((b, self.length), positions, valid=valid)
