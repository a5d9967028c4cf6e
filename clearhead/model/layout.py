"""Which cells of a (b, t) grid hold tokens, and whether a stack stores them padded (b, t, d) or packed (n, d).

Attention always sees the padded grid. Everything else works on one position at a time and may run packed, so that no
padding ever reaches a linear layer.
"""

from collections.abc import Sequence, Sized
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from clearhead.brief import brief
from clearhead.errors import UserError


@dataclass(frozen=True)
class Tokens:
    """A batch of sequences on a grid: the input of a stack."""

    __repr__ = brief

    ids: Tensor
    """b t: token ids; or b c y x: images, which fill their grid."""
    valid: Tensor | None = None
    """b t, bool: which cells hold a token; None for all. Real positions never depend on the others."""
    rows: Tensor | None = None
    """n: flat indices of the valid cells. If given, the stack runs packed. Needs right-padded, non-empty sequences."""
    positions: Tensor | None = None
    """b t: position numbers; None counts the valid cells of each row from 0."""
    documents: Tensor | None = None
    """b t: document numbers if several share a row. Attention stays inside a document."""
    types: Tensor | None = None
    """b t: segment types; None for all 0."""

    @classmethod
    def pad(
        cls, sequences: Sequence[Sequence[int]], *, fill: int = 0, left: bool = False, packed: bool = False
    ) -> Self:
        """A batch of sequences of ids, padded with `fill`. `packed` keeps the padding out of linear layers."""
        if not isinstance(sequences, Sequence) or not all(map(_is_sized, sequences)):
            raise UserError(f"sequences: expected lists of ids in a list, got {brief(sequences)}; try [ids]")
        if not sequences or not all(map(len, sequences)):
            raise UserError("expected at least one token in each sequence, got an empty one")
        width = max(map(len, sequences))
        ids = torch.full((len(sequences), width), fill)
        valid = torch.zeros(len(sequences), width, dtype=torch.bool)
        for i, sequence in enumerate(sequences):
            cells = slice(width - len(sequence), None) if left else slice(len(sequence))
            ids[i, cells] = _row(sequence)
            valid[i, cells] = True
        if valid.all():
            return cls(ids)
        return cls(ids, valid, rows=valid.flatten().nonzero()[:, 0] if packed and not left else None)

    @property
    def grid(self) -> tuple[int, int]:
        """Batch size and length."""
        return self.ids.shape[0], self.ids.shape[1]

    def padded(self) -> Self:
        """The same batch for the padded layout."""
        return replace(self, rows=None)

    def to(self, device: torch.device | str) -> Self:
        """The same batch on another device."""
        moved = {name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **moved)

    def real(self, value: Tensor) -> Tensor:
        """b t ... -> n ...: the valid cells of a grid-shaped value, in the order in which packed logits come."""
        return _real(value, self.valid, self.rows)


@dataclass(frozen=True)
class Layout:
    """The positions of one forward pass: what masks, position encodings and packing need."""

    __repr__ = brief

    grid: tuple[int, int]
    positions: Tensor
    """b|1 t"""
    start: int = 0
    """Cells before this grid, which a cache already holds."""
    valid: Tensor | None = None
    rows: Tensor | None = None
    documents: Tensor | None = None

    @classmethod
    def of(cls, tokens: Tokens, *, length: int | None = None) -> Self:
        """Layout of a batch that starts at position 0. For an image, `length` replaces the length of the grid."""
        b, t = tokens.grid if length is None else (tokens.ids.shape[0], length)
        if tokens.positions is not None:
            positions = tokens.positions
        elif tokens.valid is not None and tokens.rows is None:
            positions = (tokens.valid.long().cumsum(1) - 1).clamp(min=0)
        else:
            positions = torch.arange(t, device=tokens.ids.device)[None]
        return cls((b, t), positions, valid=tokens.valid, rows=tokens.rows, documents=tokens.documents)

    def real(self, grid: Tensor) -> Tensor:
        """b t ... -> n ...: the valid cells of a value on the grid, in order."""
        return _real(grid, self.valid, self.rows)

    def blank(self, stored: Tensor) -> Tensor:
        """b t d or b h t k -> the same with zeros in the padding; the value itself if there is no padding."""
        if self.valid is None or self.rows is not None:
            return stored
        b, t = self.valid.shape
        return stored.masked_fill(~self.valid.view(b, *[1] * (stored.ndim - 3), t, 1), 0.0)

    def pack(self, grid: Tensor) -> Tensor:
        """b t ... -> n ... when packed; itself when padded."""
        return grid if self.rows is None else grid.flatten(0, 1).index_select(0, self.rows)

    def unpack(self, stored: Tensor) -> Tensor:
        """n ... -> b t ... with zeros in the padding when packed; itself when padded."""
        if self.rows is None:
            return stored
        b, t = self.grid
        cells = stored.new_zeros(b * t, *stored.shape[1:])
        return cells.index_copy_(0, self.rows, stored).view(b, t, *stored.shape[1:])


def _is_sized(sequence: object) -> bool:
    return isinstance(sequence, Sized) and not isinstance(sequence, str)


def _row(sequence: Sequence[int]) -> Tensor:
    try:
        row = torch.as_tensor(sequence)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        row = None
    if row is None or row.ndim != 1 or row.is_floating_point() or row.is_complex() or row.dtype == torch.bool:
        raise UserError(f"sequences: expected ids, whole numbers, got {brief(sequence)}")
    return row


def _real(grid: Tensor, valid: Tensor | None, rows: Tensor | None) -> Tensor:
    flat = grid.flatten(0, 1)
    if rows is not None:
        return flat.index_select(0, rows)
    return flat if valid is None else flat[valid.flatten()]
