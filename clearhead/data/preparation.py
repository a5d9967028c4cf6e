"""Prepares examples for training: `prepare` applies the policy, and its report counts what was done.

Imports no torch.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import numpy as np

from clearhead.config import Config
from clearhead.data.sequences import Shelf, Writer
from clearhead.data.splits import Row
from clearhead.errors import UserError
from clearhead.recipe.data import Preparation
from clearhead.text.tokenizers import Tokenizer


class Report(Protocol):
    """The findings in a task's data."""

    def lines(self) -> list[str]:
        """The report as plain text, one finding a line."""
        ...

    def model_dump_json(self, *, indent: int | None = None) -> str:
        """The report as JSON."""
        ...


class SideReport(Config):
    """One side of a split's kept examples: source, target or text."""

    name: str
    n_tokens: int
    mean_length: float
    """Mean tokens per example, without <bos> and <eos>."""
    max_length: int
    n_unknown: int
    """Number of <unk> tokens."""

    @property
    def unknown_rate(self) -> float:
        return self.n_unknown / max(self.n_tokens, 1)


class SplitReport(Config):
    """The fate of one split's examples: n_read = n_kept + n_empty + n_dropped + the removed ones."""

    name: str
    n_read: int
    n_empty: int = 0
    """Left out because one side is empty."""
    n_duplicates: int = 0
    """Equal to an earlier example on every side."""
    n_duplicates_removed: int = 0
    n_overlap_removed: int = 0
    """Left out because the source is also in another split."""
    n_dropped: int = 0
    """Left out because a side is longer than the limit."""
    n_cut: int = 0
    """Kept, but cut to the limit."""
    n_kept: int
    sides: tuple[SideReport, ...]


class OverlapReport(Config):
    """Sources of one split that are also in an earlier one. A score on them measures memory."""

    split: str
    other: str
    n_shared: int
    """Examples of `split` whose source is in `other`, before anything was removed."""
    share: float
    example: str | None
    """The first shared source."""


class DataReport(Config):
    """All counts. `lines()` is for people, `model_dump()` for programs."""

    vocab_size: int
    max_length: int | None
    splits: tuple[SplitReport, ...]
    overlaps: tuple[OverlapReport, ...]

    def lines(self) -> list[str]:
        """The report as plain text, one finding a line."""
        lines = [f"vocabulary: {self.vocab_size:,} tokens"]
        for split in self.splits:
            lines.append(f"{split.name}: {split.n_kept:,} of {split.n_read:,} examples{self._losses(split)}")
            lines += [
                f"  {side.name}: {side.n_tokens:,} tokens, {side.mean_length:.1f} an example,"
                f" at most {side.max_length:,}; {side.unknown_rate:.2%} unknown"
                for side in split.sides
            ]
        lines += [
            f"{o.split}: {o.n_shared:,} sources ({o.share:.1%}) are also in {o.other}, such as {o.example!r}"
            for o in self.overlaps
            if o.n_shared
        ]
        return lines

    def _losses(self, split: SplitReport) -> str:
        kept = split.n_duplicates - split.n_duplicates_removed
        found = [
            (split.n_empty, "empty, left out"),
            (split.n_dropped, f"over {self.max_length} tokens, left out"),
            (split.n_cut, f"cut to {self.max_length} tokens"),
            (split.n_duplicates_removed, "duplicates, left out"),
            (kept, "duplicates, kept"),
            (split.n_overlap_removed, "also in another split, left out"),
        ]
        told = "; ".join(f"{count:,} {what}" for count, what in found if count)
        return f" ({told})" if told else ""


TRAIN = "train"
ROWS = 1024
"""Number of examples encoded at once."""


@dataclass(frozen=True)
class Kept:
    """The kept text of each split except `train`, and the report. The ids are on the shelf."""

    rows: dict[str, list[Row]]
    report: DataReport


def prepare(
    splits: Mapping[str, Iterable[Row]], tokenizer: Tokenizer, *, preparation: Preparation, shelf: Shelf
) -> Kept:
    """Applies the policy to every split and writes each side's ids onto the shelf as "train.0", "train.1", ...

    Only the split `train` loses examples that are too long, repeated or shared. The other splits have long
    examples cut, so that a score covers all examples with both sides. The length limit applies to pairs only.
    `train` is streamed and may be larger than memory. Raises UserError if no example of a split is left.
    """
    others = {name: list(split) for name, split in splits.items() if name != TRAIN}
    elsewhere = {source for rows in others.values() for source in _sources(rows)}
    works: dict[str, _Work] = {}
    for name, split in splits.items():
        work = works[name] = _Work(name, tokenizer, preparation, elsewhere, shelf)
        for rows in _some(others.get(name, split)):
            work.take(rows)
        if not work.n_kept:
            n_read = work.counts["n_read"]
            raise UserError(f"{name}: expected examples, got none: all {n_read} left out; try a higher max_length")
    report = DataReport(
        vocab_size=tokenizer.vocab_size,
        max_length=preparation.max_length,
        splits=tuple(work.report() for work in works.values()),
        overlaps=_overlaps(others, works[TRAIN].met if TRAIN in works else None),
    )
    return Kept({name: work.rows for name, work in works.items() if name != TRAIN}, report)


def _some(rows: Iterable[Row]) -> Iterator[list[Row]]:
    turn = iter(rows)
    while some := list(islice(turn, ROWS)):
        yield some


class Repeats:
    """The set of 64-bit numbers seen so far, at 8 bytes each, as sorted runs of clearly different lengths."""

    def __init__(self) -> None:
        self.runs: list[np.ndarray] = []

    def first(self, numbers: np.ndarray) -> np.ndarray:
        """Marks the numbers that occur for the first time, and remembers them."""
        first = np.zeros(len(numbers), dtype=bool)
        first[np.unique(numbers, return_index=True)[1]] = True
        for run in self.runs:
            first &= run[np.minimum(np.searchsorted(run, numbers), len(run) - 1)] != numbers
        new = np.sort(numbers[first])
        while len(self.runs) and len(self.runs[-1]) <= 2 * len(new):
            new = np.sort(np.concatenate([self.runs.pop(), new]), kind="stable")
        if len(new):
            self.runs.append(new)
        return first


@dataclass
class _Side:
    """Statistics of one side of a split's kept examples."""

    name: str
    writer: Writer
    max_length: int = 0
    n_unknown: int = 0

    def add(self, ids: Sequence[list[int]], unknown: int | None) -> None:
        self.writer.add(ids)
        self.max_length = max([self.max_length, *map(len, ids)])
        self.n_unknown += 0 if unknown is None else sum(sequence.count(unknown) for sequence in ids)

    def report(self, n_kept: int) -> SideReport:
        return SideReport(
            name=self.name,
            n_tokens=self.writer.n_ids,
            mean_length=self.writer.n_ids / n_kept,
            max_length=self.max_length,
            n_unknown=self.n_unknown,
        )


@dataclass
class _Work:
    """One split on its way through the policy, some examples at a time."""

    name: str
    tokenizer: Tokenizer
    preparation: Preparation
    elsewhere: set[str]
    """Sources of all splits except `train`."""
    shelf: Shelf
    met: set[str] = field(default_factory=set)
    """The members of `elsewhere` that this split has too."""
    rows: list[Row] = field(default_factory=list)
    """The kept examples, except in `train`."""
    n_kept: int = 0
    sides: list[_Side] = field(default_factory=list)
    repeats: Repeats = field(default_factory=Repeats)
    counts: Counter[str] = field(default_factory=Counter[str])
    """Counts by the fields of the report."""

    @property
    def is_train(self) -> bool:
        return self.name == TRAIN

    def take(self, rows: list[Row]) -> None:
        """Processes the next examples."""
        if not self.sides:
            names = ("text",) if len(rows[0]) == 1 else ("source", "target")
            size = self.tokenizer.vocab_size
            self.sides = [_Side(name, self.shelf.writer(f"{self.name}.{i}", size)) for i, name in enumerate(names)]
        self.counts["n_read"] += len(rows)
        self.met |= self.elsewhere.intersection(_sources(rows))
        some = _Some.of(rows, self.tokenizer)
        self.counts["n_empty"] += some.keep([all(t.strip() for t in row) and all(ids) for row, ids in some])
        self.leave_out_repeated(some)
        if self.is_train and self.preparation.remove_overlap:
            kept = [row[0].strip() not in self.elsewhere for row in some.rows]
            self.counts["n_overlap_removed"] += some.keep(kept)
        if self.preparation.max_length is not None and len(self.sides) > 1:
            self.limit_lengths(some, self.preparation.max_length)
        for i, side in enumerate(self.sides):
            side.add([ids[i] for ids in some.ids], self.tokenizer.unk_id)
        self.n_kept += len(some.rows)
        if not self.is_train:
            self.rows += some.rows

    def leave_out_repeated(self, some: "_Some") -> None:
        first = self.repeats.first(np.array([_number(row) for row in some.rows], dtype=np.uint64))
        self.counts["n_duplicates"] += len(first) - int(first.sum())
        if self.is_train and self.preparation.remove_duplicates:
            self.counts["n_duplicates_removed"] += some.keep(first.tolist())

    def limit_lengths(self, some: "_Some", limit: int) -> None:
        fits = [max(map(len, ids)) <= limit for ids in some.ids]
        if self.is_train and self.preparation.too_long == "drop":
            self.counts["n_dropped"] += some.keep(fits)
            return
        self.counts["n_cut"] += fits.count(False)
        for i, (row, sides) in enumerate(some):
            cut = [
                (text, ids) if len(ids) <= limit else _cut(text, limit, self.tokenizer, target=side > 0)
                for side, (text, ids) in enumerate(zip(row, sides, strict=True))
            ]
            some.rows[i], some.ids[i] = tuple(text for text, _ in cut), tuple(ids for _, ids in cut)

    def report(self) -> SplitReport:
        sides = tuple(side.report(self.n_kept) for side in self.sides)
        return SplitReport(name=self.name, n_kept=self.n_kept, sides=sides, **self.counts)


@dataclass
class _Some:
    """Examples as text and as ids, a tuple of sides each."""

    rows: list[Row]
    ids: list[tuple[list[int], ...]]

    @classmethod
    def of(cls, rows: list[Row], tokenizer: Tokenizer) -> "_Some":
        columns = zip(*rows, strict=True)
        ids = [tokenizer.encode_batch(column, target=side > 0) for side, column in enumerate(columns)]
        return cls(rows, list(zip(*ids, strict=True)))

    def __iter__(self) -> Iterator[tuple[Row, tuple[list[int], ...]]]:
        return zip(list(self.rows), list(self.ids), strict=True)

    def keep(self, kept: Sequence[bool]) -> int:
        """Keeps the marked examples and returns how many it removed."""
        n_before = len(self.rows)
        self.rows = [row for row, keep in zip(self.rows, kept, strict=True) if keep]
        self.ids = [ids for ids, keep in zip(self.ids, kept, strict=True) if keep]
        return n_before - len(self.rows)


def _number(row: Row) -> int:
    """A 64-bit hash. Two of a million examples collide with a probability below one in ten million."""
    digest = hashlib.blake2b("\0".join(row).encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


def _sources(rows: Iterable[Row]) -> list[str]:
    return [source for row in rows if (source := row[0].strip())]


def _cut(text: str, limit: int, tokenizer: Tokenizer, *, target: bool) -> tuple[str, list[int]]:
    """The longest prefix of `text` that ends at a token and encodes to at most `limit` ids.

    A prefix may be split differently from the whole text, so it is encoded again.
    """
    ends = [end for _, end in tokenizer.offsets(text)]
    for end in reversed(ends[:limit]):
        ids = tokenizer.encode(text[:end], target=target)
        if len(ids) <= limit:
            return text[:end], ids
    return "", []


def _overlaps(splits: Mapping[str, Sequence[Row]], met_in_train: set[str] | None) -> tuple[OverlapReport, ...]:
    """The overlap of every split with each one before it, starting with `train`."""
    sources = {name: _sources(rows) for name, rows in splits.items()}
    names, found = list(sources), list[OverlapReport]()
    before = [] if met_in_train is None else [(TRAIN, met_in_train, names)]
    before += [(name, set(sources[name]), names[i + 1 :]) for i, name in enumerate(names)]
    for other, known, later in before:
        for name in later:
            shared = [source for source in sources[name] if source in known]
            found.append(
                OverlapReport(
                    split=name,
                    other=other,
                    n_shared=len(shared),
                    share=len(shared) / max(len(sources[name]), 1),
                    example=shared[0] if shared else None,
                )
            )
    return tuple(found)
