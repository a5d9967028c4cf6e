"""Which cells of a (b, t) grid hold tokens, and whether a stack stores them padded (b, t, d) or packed (m, d).

Attention always sees the padded grid. Everything else works on one position at a time and may run packed, so that no
padding ever reaches a linear layer.
"""

from collections.abc import Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.brief import brief, shape_of
from clearhead.config import Continuous, StackConfig
from clearhead.errors import UserError

WHOLE = (torch.int64, torch.int32)


ROW, COLUMN = 20, 36
"""The first bits of the row and of the column in a position within a picture; the place stands before them."""


def axes_of(positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """b t -> the place, and the row and the column in the same count: three times the place outside of pictures."""
    place = positions & ((1 << ROW) - 1)
    return place, place + (positions >> ROW & ((1 << COLUMN - ROW) - 1)), place + (positions >> COLUMN)


def in_picture(row: Tensor, column: Tensor) -> Tensor:
    """What a row and a column within a picture add to the place of its first token."""
    return (row << ROW) + (column << COLUMN)


@dataclass(frozen=True)
class Tokens:
    """A batch of sequences on a grid: the input of a stack."""

    __repr__ = brief

    ids: Tensor
    """b t: token ids; or b c y x: images, which fill their grid; or b n 1: samples of sounds."""
    valid: Tensor | None = None
    """b t, bool: which cells hold a token or a sample; None for all. Real positions never depend on the others."""
    rows: Tensor | None = None
    """n: flat indices of the valid cells, or of all without `valid`. If given, the stack runs packed. Needs sequences
    that are not empty and padded on the right."""
    positions: Tensor | None = None
    """b t: position numbers; None counts the valid cells of each row from 0."""
    documents: Tensor | None = None
    """b t: document numbers if several share a row. Attention stays inside a document."""
    types: Tensor | None = None
    """b t: segment types; None for all 0."""
    pictures: Tensor | None = None
    """n c y x: the pictures within the texts, of all rows in the order of their marks; None for none. p c: the
    patches of pictures of any size, one picture after the other."""
    grids: Tensor | None = None
    """n 2: the rows and columns of the patches of pictures of any size."""
    vectors: Tensor | None = None
    """m d: the vectors of these pictures, once the network has read them."""
    places: Tensor | None = None
    """b t: the row of `vectors` that each cell reads in place of its token's vector; -1 for none."""
    groups: Tensor | None = None
    """b t: tokens with the same number above 0 see each other, the later ones too; None for all 0."""

    @classmethod
    def pad(
        cls, sequences: Sequence[Sequence[int]], *, fill: int = 0, left: bool = False, packed: bool = False
    ) -> Self:
        """A batch of sequences of ids, padded with `fill`. `packed` keeps the padding out of linear layers."""
        if not isinstance(sequences, Sequence) or not all(map(_is_sized, sequences)):
            raise UserError(f"sequences: expected lists of ids in a list, got {brief(sequences)}; try [ids]")
        if not sequences or not all(map(len, sequences)):
            raise UserError("expected at least one token in each sequence, got an empty one")
        lengths = torch.tensor([len(sequence) for sequence in sequences])
        width, cells = int(lengths.max()), torch.arange(int(lengths.max()))
        valid = cells >= width - lengths[:, None] if left else cells < lengths[:, None]
        rows = valid.flatten().nonzero()[:, 0]
        ids = torch.full((len(sequences), width), fill)
        ids.view(-1)[rows] = torch.cat([_row(sequence) for sequence in sequences]).to(ids.device)
        stored = rows if packed and not left else None
        return cls(ids, None if len(rows) == valid.numel() else valid, rows=stored)

    @classmethod
    def waves(cls, sounds: Sequence[Tensor]) -> Self:
        """A batch of the samples of sounds, n 1 each, with zeros after the shorter ones."""
        lengths = [len(sound) for sound in sounds]
        width = max(lengths)
        ids = torch.stack([F.pad(sound, (0, 0, 0, width - len(sound))) for sound in sounds])
        valid = torch.arange(width) < torch.tensor(lengths)[:, None]
        return cls(ids, None if valid.all() else valid)

    @property
    def grid(self) -> tuple[int, int]:
        """Batch size and length."""
        return self.ids.shape[0], self.ids.shape[1]

    @property
    def valid_cells(self) -> Tensor:
        """b t, bool: the cells that hold a token or a sample."""
        return _cells(self.valid, self.grid, self.ids.device)

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
    groups: Tensor | None = None
    read: Tensor | None = None
    """n, bool: which of the batch's n valid cells this layout has, in their order; None for all."""

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
        own = {"rows": tokens.rows, "documents": tokens.documents, "groups": tokens.groups}
        return cls((b, t), positions, valid=tokens.valid, **own)

    def real(self, grid: Tensor) -> Tensor:
        """b t ... -> n ...: the valid cells of a value on the grid, in order."""
        return _real(grid, self.valid, self.rows)

    def by_document(self) -> list[Tensor]:
        """w l each: the cells of the batch's documents, those of one length together. No two rows share a document."""
        cells = torch.arange(self.grid[0] * self.grid[1], device=self.positions.device)
        own = cells // self.grid[1] << 2 * COLUMN - ROW
        own = own if self.documents is None else own + self.documents.expand(self.grid).flatten()
        cells = cells if self.valid is None else cells[self.valid.flatten()]
        _, number, counts = own[cells].unique(return_inverse=True, return_counts=True)
        cells, lengths = cells[number.argsort(stable=True)], counts.repeat_interleave(counts)
        return [cells[lengths == n].view(-1, n) for n in counts.unique().tolist()]

    def only(self, read: Tensor | None) -> Self | None:
        """The packed layout of those valid cells that `read` marks, n, bool; None if it would store no fewer rows."""
        (b, t), device = self.grid, self.positions.device
        n_stored, n = b * t if self.rows is None else self.n_stored, 0 if read is None else int(read.sum())
        if read is None or n == 0 or round_up(n) >= n_stored:
            return None
        cells = self.real(torch.arange(b * t, device=device).view(b, t)) if self.rows is None else self.rows
        rows = cells[read]
        valid = torch.zeros(b * t, dtype=torch.bool, device=device).index_fill_(0, rows, True)
        return replace(self, valid=valid.view(b, t), rows=rows, read=read)

    def pick(self, stored: Tensor, whole: "Layout") -> Tensor:
        """b t d (or packed m d) of the layout `whole` -> the rows of this one, which was made by `whole.only`."""
        if whole.rows is None:
            return self.pack(stored)
        assert self.rows is not None
        assert self.read is not None
        rows = self.read.nonzero()[:, 0]
        return _Pack.apply(stored, F.pad(rows, (0, self.n_stored - len(rows))), len(rows))

    def kept(self, labels: Tensor) -> Tensor:
        """n -> the labels of the cells that this layout has. Labels that are not of all n valid cells are unchanged."""
        return labels if self.read is None or labels.shape != self.read.shape else labels[self.read]

    @property
    def valid_cells(self) -> Tensor:
        """b t, bool: the cells that hold a token, a patch or a sample."""
        return _cells(self.valid, self.grid, self.positions.device)

    @property
    def n_valid(self) -> int:
        """n: the valid cells."""
        if self.rows is not None:
            return len(self.rows)
        return self.grid[0] * self.grid[1] if self.valid is None else int(self.valid.sum())

    @property
    def stored(self) -> Tensor:
        """m: the cells that a packed stack stores: its n rows, then the first cell again up to a round number.

        A product with another number of rows is another kernel for oneDNN, which takes longer to write than to run.
        Compiled code stores n, because a round number of them would make another graph for each number.
        """
        assert self.rows is not None
        return F.pad(self.rows, (0, self.n_stored - len(self.rows)))

    @property
    def n_stored(self) -> int:
        """m."""
        assert self.rows is not None
        return len(self.rows) if torch.compiler.is_compiling() else round_up(len(self.rows))

    def trim(self, stored: Tensor) -> Tensor:
        """m ... -> n ... when packed. Any other value, which has a row for each text and so at most m, is unchanged."""
        return stored if self.rows is None or len(stored) != self.n_stored else stored[: len(self.rows)]

    def fill(self, labels: Tensor, stored: Tensor, value: int) -> Tensor:
        """n -> m: one label for each row of a value that is stored packed; for any other value, the same labels."""
        if self.rows is None or len(stored) != self.n_stored or labels.shape != self.rows.shape:
            return labels
        return F.pad(labels, (0, len(stored) - len(labels)), value=value)

    def blank(self, stored: Tensor) -> Tensor:
        """b t d or b h t k -> the same with zeros in the padding; the value itself if there is no padding."""
        if self.valid is None or self.rows is not None:
            return stored
        b, t = self.valid.shape
        return stored.masked_fill(~self.valid.view(b, *[1] * (stored.ndim - 3), t, 1), 0.0)

    def pack(self, grid: Tensor) -> Tensor:
        """b t ... -> m ... when packed; the grid itself when padded."""
        if self.rows is None:
            return grid
        cells = grid.flatten(0, 1)
        if len(self.rows) == self.n_stored == len(cells):
            return cells
        return _Pack.apply(cells, self.stored, len(self.rows))

    def unpack(self, stored: Tensor) -> Tensor:
        """m ... or n ... -> b t ... with zeros in the padding when packed; the value itself when padded."""
        if self.rows is None:
            return stored
        b, t = self.grid
        if len(self.rows) == b * t:
            return stored[: b * t].unflatten(0, (b, t))
        return _Unpack.apply(stored, self.stored[: len(stored)], len(self.rows), b * t).unflatten(0, (b, t))


class _Pack(torch.autograd.Function):
    """c ... -> m ...; only the first n rows have a gradient."""

    @staticmethod
    def forward(ctx: Any, cells: Tensor, stored: Tensor, n: int) -> Tensor:  # pyrefly: ignore[bad-override]
        ctx.save_for_backward(stored)
        ctx.n, ctx.n_cells = n, len(cells)
        return cells.index_select(0, stored)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return _scattered(gradients[0], ctx.saved_tensors[0], ctx.n, ctx.n_cells), None, None


class _Unpack(torch.autograd.Function):
    """m ... -> c ...: the first n rows."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, stored: Tensor, n: int, n_cells: int) -> Tensor:  # pyrefly: ignore[bad-override]
        ctx.save_for_backward(stored)
        ctx.n = n
        return _scattered(rows, stored, n, n_cells)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        rows = gradients[0].index_select(0, ctx.saved_tensors[0])
        rows[ctx.n :] = 0.0
        return rows, None, None, None


def _scattered(rows: Tensor, stored: Tensor, n: int, n_cells: int) -> Tensor:
    if n == n_cells:
        return rows[:n]
    return rows.new_zeros(n_cells, *rows.shape[1:]).index_copy_(0, stored[:n], rows[:n])


def round_up(n: int) -> int:
    """Rounds n up to one of few numbers: a multiple of 16 with at most five significant bits."""
    step = max(16, 1 << max(n.bit_length() - 5, 0))
    return -(-n // step) * step


def _is_sized(sequence: object) -> bool:
    return isinstance(sequence, Sized) and not isinstance(sequence, str)


def _row(sequence: Sequence[int]) -> Tensor:
    try:
        row = torch.as_tensor(sequence)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        row = None
    if row is None or row.ndim != 1 or row.is_floating_point() or row.is_complex() or row.dtype == torch.bool:
        raise UserError(f"sequences: expected ids, whole numbers, got {brief(sequence)}")
    return row.to("cpu", torch.int64)


def _cells(valid: Tensor | None, grid: tuple[int, int], device: torch.device) -> Tensor:
    return torch.ones(grid, dtype=torch.bool, device=device) if valid is None else valid


def _real(grid: Tensor, valid: Tensor | None, rows: Tensor | None) -> Tensor:
    flat = grid.flatten(0, 1)
    if valid is None:
        return flat
    return flat[valid.flatten()] if rows is None else flat.index_select(0, rows)


def check_tokens(tokens: Tokens, stack: StackConfig) -> None:
    """Raises UserError unless a stack can read these ids and the other values of each cell."""
    ids = tokens.ids
    reads = stack.input
    if isinstance(reads, Continuous):
        if ids.ndim != 1 + len(reads.shape) or not ids.is_floating_point():
            raise UserError(f"{reads.medium}: expected floats of batch x {reads.sides}, got {shape_of(ids)}")
        return
    if ids.ndim != 2 or ids.dtype not in WHOLE:
        remedy = "try ids[None]" if ids.ndim == 1 and ids.dtype in WHOLE else "try Tokens.pad(lists of ids)"
        raise UserError(f"ids: expected int64 of batch x length, got {shape_of(ids)}; {remedy}")
    if not ids.numel():
        raise UserError(f"ids: expected at least one token, got {shape_of(ids)}")
    b, t = ids.shape
    for name, value in (("positions", tokens.positions), ("documents", tokens.documents), ("types", tokens.types)):
        if value is not None and (value.dtype not in WHOLE or value.shape[1:] != (t,) or value.shape[0] not in (1, b)):
            raise UserError(f"{name}: expected int64 of {b} x {t}, one for each of the ids, got {shape_of(value)}")
    if tokens.valid is not None and (tokens.valid.dtype != torch.bool or tokens.valid.shape != (b, t)):
        raise UserError(f"valid: expected bool of {b} x {t}, True where a token is, got {shape_of(tokens.valid)}")
