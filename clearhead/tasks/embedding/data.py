"""Texts that belong together, read for sentence vectors: pairs, triples with a negative, and scored pairs.

Imports no torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from clearhead.data.sources import cells_of, rows_of
from clearhead.data.splits import ReportedSplit
from clearhead.data.tables import number_of, text_of, written
from clearhead.errors import UserError
from clearhead.randomness import key
from clearhead.recipe.data import Column, HeldOut, HubDataset, Source, Table, share_of
from clearhead.tasks.classification.data import Inputs
from clearhead.text.tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class Group:
    """An anchor, a text that belongs to it, and perhaps one that does not."""

    texts: tuple[str, ...]
    where: str

    @property
    def is_blank(self) -> bool:
        """Whether one of its texts is blank."""
        return not all(text.strip() for text in self.texts)


def read_groups(source: Source, negative: Column | None) -> list[Group]:
    """Every pair or triple of a source, in order. Raises UserError for a source of single texts."""
    if not source.is_paired:
        raise UserError(f'{source.kind}: expected pairs of texts, got single ones; try source = "A" and target = "B"')
    if negative is None:
        return [Group(texts, f"{_name(source)}, example {i}") for i, texts in enumerate(rows_of(source), start=1)]
    columns = [*_columns(source), negative]
    return [Group(_texts(cells, columns, where), where) for where, cells in cells_of(source, columns)]


def read_scored(source: Source, score: Column) -> list[tuple[Group, float]]:
    """Every pair of a source with its score. Raises UserError, which names the row, for a score that is no number."""
    columns = [*_columns(source), score]
    found: list[tuple[Group, float]] = []
    for where, (*cells, cell) in cells_of(source, columns):
        number = number_of(written(cell))
        if number is None:
            raise UserError(f"{where}: expected a number in column {score!r}, got {cell!r}; mend it or delete the row")
        found.append((Group(_texts(cells, columns, where), where), number))
    if len({number for _, number in found}) < 2:
        raise UserError(f"{_name(source)}: expected different scores in column {score!r}, got one; try another column")
    return found


def _name(source: Source) -> str:
    return ", ".join(map(str, source.files)) or source.kind


def _columns(source: Source) -> list[Column]:
    if not isinstance(source, Table | HubDataset) or not source.is_paired:
        raise UserError(f'{source.kind}: expected a table with columns of pairs, got none; try kind = "table"')
    return source.columns


def _texts(cells: Sequence[object], columns: Sequence[Column], where: str) -> tuple[str, ...]:
    return tuple(text_of(cell, where=f"{where}:{name}") for name, cell in zip(columns, cells, strict=False))


def hold_out(groups: Sequence[Group], held_out: HeldOut) -> tuple[list[Group], list[Group]]:
    """Training and validation. Every group of an anchor is in one part; the choice depends on the anchors alone."""
    anchors = sorted({group.texts[0] for group in groups}, key=lambda text: key("held out", text))
    out = set(anchors[: round(share_of(held_out, len(anchors), "anchors") * len(anchors))])
    if len(out) < 2:
        raise UserError(f"data.train: expected more pairs to hold some out, got {len(groups)}; give data.valid")
    return [g for g in groups if g.texts[0] not in out], [g for g in groups if g.texts[0] in out]


@dataclass(frozen=True)
class Groups:
    """Pairs or triples, and the ids of their texts with marks, cut to a length."""

    texts: Sequence[tuple[str, ...]]
    ids: Sequence[Sequence[Sequence[int]]]
    """The ids of text k of group i are ids[i][k]."""
    lengths: Sequence[int]
    """Tokens of each text before cutting."""

    @classmethod
    def of(cls, groups: Sequence[Group], tokenizer: Tokenizer, limit: int) -> Self:
        """Encodes the groups whose texts are not blank."""
        texts = [group.texts for group in groups if not group.is_blank]
        sides = [Inputs.of([(text,) for text in side], tokenizer, limit) for side in zip(*texts, strict=True)]
        ids = [*zip(*(side.ids for side in sides), strict=True)]
        return cls(texts, ids, [length for side in sides for length in side.lengths])

    @property
    def sizes(self) -> list[int]:
        """The tokens of the anchor and the positive of each group."""
        return [len(anchor) + len(positive) for anchor, positive, *_ in self.ids]

    def take(self, rows: Sequence[int]) -> Self:
        """The groups with these numbers."""
        starts = range(0, len(self.lengths), len(self.texts) or 1)  # One a side.
        lengths = [self.lengths[start + i] for start in starts for i in rows]
        return type(self)([self.texts[i] for i in rows], [self.ids[i] for i in rows], lengths)


class GroupSplit(ReportedSplit):
    """One split."""

    name: str
    n_read: int
    n_blank: int
    """Left out because a text is empty."""
    mean_length: float
    """Mean tokens a text, special ones included, before cutting."""
    n_cut: int
    """Texts of more tokens than the limit, of which only the beginning is read."""
    n_duplicates: int
    """Groups that an earlier one equals."""
    n_shared: int
    """Groups whose anchor is also in training."""

    @classmethod
    def of(cls, name: str, read: Sequence[Group], found: Groups, train: Groups, limit: int) -> Self:
        """The counts of a split."""
        known = set() if name == "train" else {one[0] for one in train.texts}
        return cls(
            name=name,
            n_read=len(read),
            n_blank=len(read) - len(found.texts),
            mean_length=sum(found.lengths) / max(len(found.lengths), 1),
            n_cut=sum(length > limit for length in found.lengths),
            n_duplicates=len(found.texts) - len(set(found.texts)),
            n_shared=sum(one[0] in known for one in found.texts),
        )

    def lines(self, limit: int) -> list[str]:
        """The findings as text."""
        blank = f" ({self.n_blank:,} with an empty text, left out)" if self.n_blank else ""
        cut = f"; {self.n_cut:,} cut to {limit:,}" if self.n_cut else ""
        size = f"{self.n_read - self.n_blank:,} of {self.n_read:,} examples{blank}"
        lines = [f"{self.name}: {size}, {self.mean_length:.1f} tokens a text{cut}"]
        if self.n_duplicates:
            lines.append(f"  {self.n_duplicates:,} duplicates, kept")
        if self.n_shared:
            lines.append(f"  {self.n_shared:,} have an anchor that is also in train")
        return lines
