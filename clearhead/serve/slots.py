"""The keys and values, or states, of texts of different lengths that are written together."""

from collections.abc import Sequence

import torch
from torch import Tensor

from clearhead.model.cache import BlockCache, Cache, KeyValues
from clearhead.model.layout import Layout, Tokens

LEAST_ROOM = 64
"""The cells that a row begins with."""


class Slots(Cache):
    """One row of cells for each running text; the first n rows are in use, and row i is row i of the batch.

    No step copies the cells: it writes new keys and values at the end of each row, and attention reads views. Rows and
    cells double as texts need them, up to `most_rows` by `most_cells`. When the last text leaves, all memory is freed.
    Attention never reads stale cells, but they must hold finite numbers, so that 0 times them is 0.
    """

    def __init__(self, n_layers: int, *, most_rows: int, most_cells: int) -> None:
        super().__init__([BlockCache(attn=LayerSlots(self, layer)) for layer in range(n_layers)])
        self.most_rows, self.most_cells = most_rows, most_cells
        self.cells: Tensor | None = None
        """layer 2 row h s k: keys and values, of the width of the wider ones."""
        self.lengths: list[int] = []
        """Filled cells of each row in use."""
        self.shifts: list[int] = []
        """What the place of the next token of each row is beyond its length (`Cache.shift`)."""
        self.row = self.at = torch.empty(0, dtype=torch.long)
        self.width = 0

    @property
    def n(self) -> int:
        """Rows in use."""
        return len(self.lengths)

    @property
    def passes(self) -> "Sequence[Slots]":
        """The caches of the passes that a step makes, in the order of the rows."""
        return [self]

    def read(self, row: int) -> Tensor:
        """layer 2 h s k: the keys and values of a row."""
        assert self.cells is not None
        return self.cells[:, :, row]

    def join(self, past: Cache, parents: Sequence[int], lengths: Sequence[int]) -> None:
        """Adds rows: row i begins with the first lengths[i] cells of row parents[i] of a prefill."""
        first, width = self.n, past.length
        none = torch.empty(1, 0, 1, 0)
        sides = [side for block in past.blocks for side in (block.attn.k, block.attn.v) if side is not None]
        cells = self.reserve(
            first + len(parents), width + 1, like=max(sides, key=lambda side: side.shape[-1], default=none)
        )
        index = torch.tensor(parents, device=cells.device)
        for layer, (block, own) in enumerate(zip(past.blocks, self.blocks, strict=True)):
            for part, value in enumerate((block.attn.k, block.attn.v)):
                if value is not None:
                    cells[layer, part, first : first + len(parents), :, :width, : value.shape[-1]] = value[index]
            states = [value[index] for value in block.mix.values]
            kept = own.mix.values or [state[:0] for state in states]
            own.mix.values = tuple(map(torch.cat, zip(kept, states, strict=True)))
        self.lengths += lengths
        self.shifts += [0] * len(parents) if past.shift is None else past.shift[index, 0].tolist()

    def leave(self, row: int) -> None:
        """Frees a row; the last one in use takes its place."""
        last = self.n - 1
        if row != last and self.cells is not None:
            filled = self.lengths[last]
            self.cells[:, :, row, :, :filled] = self.cells[:, :, last, :, :filled]
            self.lengths[row], self.shifts[row] = filled, self.shifts[last]
            for block in self.blocks:
                block.mix.move(*torch.tensor([[row], [last]], device=self.cells.device))
        self.lengths.pop()
        self.shifts.pop()
        for block in self.blocks:
            block.mix.values = tuple(value[:last] for value in block.mix.values)
        if not self.lengths:
            self.cells = None

    def clear(self) -> None:
        """Frees all rows."""
        self.lengths.clear()
        self.shifts.clear()
        self.cells = None
        for block in self.blocks:
            block.mix.values = ()

    def forget(self, row: int) -> None:
        """Replaces numbers that are not finite by 0."""
        if self.cells is not None:
            self.cells[:, :, row] = 0
        for block in self.blocks:
            for value in block.mix.values:
                value[row] = 0

    def extend(self, tokens: Tokens) -> tuple[Layout, Layout]:
        """Makes room for one more token in each row in use, or for several where one row is."""
        assert self.cells is not None
        n, t = tokens.grid
        assert n == self.n
        assert 1 in (n, t), "one token a row, or one row"
        device = self.cells.device
        self.width = max(self.lengths) + t
        self.reserve(n, self.width, like=self.cells)
        new = torch.tensor(self.lengths, device=device)[:, None] + torch.arange(t, device=device)
        self.at, self.row = new.flatten(), torch.arange(n, device=device).expand(max(n, t))
        cell = torch.arange(self.width, device=device)[None]
        valid = None if min(self.lengths) + t == self.width else cell <= new
        self.lengths = [length + t for length in self.lengths]
        places = new + torch.tensor(self.shifts, device=device)[:, None] if any(self.shifts) else new
        return Layout((n, t), places, start=self.width - t), Layout((n, self.width), cell, valid=valid)

    def reserve(self, rows: int, width: int, *, like: Tensor) -> Tensor:
        """The cells, at least this many, with the heads, width, type and device of `like`."""
        have = (0, 0) if self.cells is None else (self.cells.shape[2], self.cells.shape[4])
        if self.cells is not None and rows <= have[0] and width <= have[1]:
            return self.cells
        n_rows = max(have[0], _doubled(rows, 1, self.most_rows))
        n_cells = max(have[1], _doubled(width, LEAST_ROOM, self.most_cells))
        heads, d_head = like.shape[-3], like.shape[-1]
        cells = like.new_empty(len(self.blocks), 2, n_rows, heads, n_cells, d_head)
        cells[:, :, have[0] :] = 0
        cells[:, :, : have[0], :, have[1] :] = 0
        if self.cells is not None:
            cells[:, :, : have[0], :, : have[1]] = self.cells
        self.cells = cells
        return cells


class SlotsApart:
    """Slots whose rows are steps of their own. Every product of a text has the shape that it has when it is alone."""

    def __init__(self, n_layers: int, *, most_rows: int, most_cells: int) -> None:
        self.n_layers, self.most_rows, self.most_cells = n_layers, most_rows, most_cells
        self.passes: list[Slots] = []

    @property
    def lengths(self) -> list[int]:
        """Filled cells of each row in use."""
        return [one.lengths[0] for one in self.passes]

    def read(self, row: int) -> Tensor:
        """layer 2 h s k: the keys and values of a row."""
        return self.passes[row].read(0)

    def join(self, past: Cache, parents: Sequence[int], lengths: Sequence[int]) -> None:
        """Adds rows: row i begins with the first lengths[i] cells of row parents[i] of a prefill."""
        for parent, length in zip(parents, lengths, strict=True):
            self.passes.append(Slots(self.n_layers, most_rows=1, most_cells=self.most_cells))
            self.passes[-1].join(past, [parent], [length])

    def leave(self, row: int) -> None:
        """Frees a row; the last one in use takes its place."""
        self.passes[row] = self.passes[-1]
        self.passes.pop()

    def clear(self) -> None:
        """Frees all rows."""
        self.passes.clear()

    def forget(self, row: int) -> None:
        """Replaces numbers that are not finite by 0. None of them can reach another row."""


class LayerSlots(KeyValues):
    """One attention's share of the slots."""

    def __init__(self, slots: Slots, layer: int) -> None:
        super().__init__()
        self.slots, self.layer = slots, layer

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Writes n h t k each at the end of every row; returns views of the rows in use, n h s k."""
        slots = self.slots
        assert slots.cells is not None
        keys, values = (side[..., : new.shape[-1]] for side, new in zip(slots.cells[self.layer], (k, v), strict=True))
        keys[slots.row, :, slots.at] = k.transpose(1, 2).flatten(0, 1)
        values[slots.row, :, slots.at] = v.transpose(1, 2).flatten(0, 1)
        return keys[: slots.n, :, : slots.width], values[: slots.n, :, : slots.width]


def _doubled(needed: int, least: int, most: int) -> int:
    """The smallest sufficient power of two, at most the maximum."""
    return max(needed, min(most, max(least, 1 << (needed - 1).bit_length())))
