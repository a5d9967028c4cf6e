"""Prepares examples for training: `prepare` applies the policy, and its report counts what was done.

Imports no torch.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, compress, islice
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
    """One side of a split's kept examples: source or target."""

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

    def lines(self, limit: int | None) -> list[str]:
        """The findings as text; `limit` is the most tokens of a side."""
        counts = [
            (self.n_empty, "empty, left out"),
            (self.n_dropped, f"over {limit} tokens, left out"),
            (self.n_cut, f"cut to {limit} tokens"),
            (self.n_duplicates_removed, "duplicates, left out"),
            (self.n_duplicates - self.n_duplicates_removed, "duplicates, kept"),
            (self.n_overlap_removed, "also in another split, left out"),
        ]
        losses = "; ".join(f"{count:,} {what}" for count, what in counts if count)
        return [
            f"{self.name}: {self.n_kept:,} of {self.n_read:,} examples{losses and f' ({losses})'}",
            *(
                f"  {side.name}: {side.n_tokens:,} tokens, {side.mean_length:.1f} an example,"
                f" at most {side.max_length:,}; {side.unknown_rate:.2%} unknown"
                for side in self.sides
            ),
        ]


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
        return [
            f"vocabulary: {self.vocab_size:,} tokens",
            *(line for split in self.splits for line in split.lines(self.max_length)),
            *(
                f"{o.split}: {o.n_shared:,} sources ({o.share:.1%}) are also in {o.other}, such as {o.example!r}"
                for o in self.overlaps
                if o.n_shared
            ),
        ]


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
    """Applies the policy to every split and writes the ids of each side onto the shelf as "train.0" and "train.1".

    Only the split `train` loses examples that are too long, repeated or shared. The other splits have long
    examples cut, so that a score covers all examples with both sides. `train` is streamed and may be larger than
    memory. Raises UserError if no example of a split is left.
    """
    others = {name: list(split) for name, split in splits.items() if name != TRAIN}
    elsewhere = {source for rows in others.values() for source in _sources(rows)}
    works: dict[str, _Work] = {}
    for name, split in splits.items():
        writers = [shelf.writer(f"{name}.{side}", tokenizer.vocab_size) for side in range(len(SIDES))]
        work = works[name] = _Work(name, tokenizer, preparation, elsewhere, writers)
        turn = iter(others.get(name, split))
        while rows := list(islice(turn, ROWS)):
            work.take(rows)
        if not work.n_kept:
            n_read = work.counts["n_read"]
            raise UserError(f"{name}: expected examples, got none: all {n_read} left out; try a higher max_length")
    known = {name: work.met if name == TRAIN else {*_sources(others[name])} for name, work in works.items()}
    report = DataReport(
        vocab_size=tokenizer.vocab_size,
        max_length=preparation.max_length,
        splits=tuple(work.report() for work in works.values()),
        overlaps=tuple(_overlap(name, others[name], other, known[other]) for other, name in combinations(known, 2)),
    )
    return Kept({name: work.rows for name, work in works.items() if name != TRAIN}, report)


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


SIDES = ("source", "target")
Example = tuple[Row, tuple[list[int], ...]]
"""The text and the ids of both sides."""


@dataclass
class _Work:
    """One split on its way through the policy, some examples at a time."""

    name: str
    tokenizer: Tokenizer
    preparation: Preparation
    elsewhere: set[str]
    """Sources of all splits except `train`."""
    writers: list[Writer]
    """One for each side."""
    met: set[str] = field(default_factory=set)
    """The members of `elsewhere` that this split has too."""
    rows: list[Row] = field(default_factory=list)
    """The kept examples, except in `train`."""
    repeats: Repeats = field(default_factory=Repeats)
    counts: Counter[str] = field(default_factory=Counter[str])
    """Counts by the fields of the report."""
    n_unknown: Counter[int] = field(default_factory=Counter[int])
    """The number of unknown tokens of each side."""

    @property
    def n_kept(self) -> int:
        return len(self.writers[0].lengths)

    def take(self, rows: list[Row]) -> None:
        """Processes the next examples."""
        policy, is_train = self.preparation, self.name == TRAIN
        self.counts["n_read"] += len(rows)
        self.met |= self.elsewhere.intersection(_sources(rows))
        columns = zip(*rows, strict=True)
        ids = [self.tokenizer.encode_batch(column, target=side > 0) for side, column in enumerate(columns)]
        examples: list[Example] = [*zip(rows, zip(*ids, strict=True), strict=True)]
        whole = [all(text.strip() for text in row) and all(ids) for row, ids in examples]
        examples = self.keep(examples, whole, "n_empty")
        first = self.repeats.first(np.array([_number(row) for row, _ in examples], dtype=np.uint64)).tolist()
        self.counts["n_duplicates"] += first.count(False)
        if is_train and policy.remove_duplicates:
            examples = self.keep(examples, first, "n_duplicates_removed")
        if is_train and policy.remove_overlap:
            alone = [row[0].strip() not in self.elsewhere for row, _ in examples]
            examples = self.keep(examples, alone, "n_overlap_removed")
        if policy.max_length is not None:
            fits = [max(map(len, ids)) <= policy.max_length for _, ids in examples]
            if is_train and policy.too_long == "drop":
                examples = self.keep(examples, fits, "n_dropped")
            else:
                self.counts["n_cut"] += fits.count(False)
                examples = [self.cut(example, policy.max_length) for example in examples]
        for side, writer in enumerate(self.writers):
            sequences = [ids[side] for _, ids in examples]
            writer.add(sequences)
            if self.tokenizer.unk_id is not None:
                self.n_unknown[side] += sum(sequence.count(self.tokenizer.unk_id) for sequence in sequences)
        if not is_train:
            self.rows += [row for row, _ in examples]

    def keep(self, examples: list[Example], kept: list[bool], count: str) -> list[Example]:
        """The marked examples. Counts the others."""
        self.counts[count] += kept.count(False)
        return [*compress(examples, kept)]

    def cut(self, example: Example, limit: int) -> Example:
        """The example with both sides cut to the limit."""
        sides = [
            (text, ids) if len(ids) <= limit else _cut(text, limit, self.tokenizer, target=side > 0)
            for side, (text, ids) in enumerate(zip(*example, strict=True))
        ]
        return tuple(text for text, _ in sides), tuple(ids for _, ids in sides)

    def report(self) -> SplitReport:
        sides = tuple(
            SideReport(
                name=name,
                n_tokens=writer.n_ids,
                mean_length=writer.n_ids / self.n_kept,
                max_length=max(writer.lengths),
                n_unknown=self.n_unknown[side],
            )
            for side, (name, writer) in enumerate(zip(SIDES, self.writers, strict=True))
        )
        return SplitReport(name=self.name, n_kept=self.n_kept, sides=sides, **self.counts)


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


def _overlap(name: str, rows: Sequence[Row], other: str, known: set[str]) -> OverlapReport:
    """The overlap of a split with the sources of another one."""
    sources = _sources(rows)
    shared = [source for source in sources if source in known]
    share, example = len(shared) / max(len(sources), 1), shared[0] if shared else None
    return OverlapReport(split=name, other=other, n_shared=len(shared), share=share, example=example)
