"""What there is to train on, told before training: kept, left out, cut, repeated, or in two splits at once.

`prepare` applies the policy and counts as it goes, so that the report is of what was done. Imports no torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clearhead.config import Config
from clearhead.data.sources import Pairs, Texts
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import UserError
from clearhead.recipe.data import Preparation

TRAIN = "train"


class SideReport(Config):
    """One side of a split's kept examples: source, target or text."""

    name: str
    n_tokens: int
    mean_length: float
    """Tokens an example, without <bos> and <eos>."""
    max_length: int
    n_unknown: int
    """Tokens that are <unk>."""

    @property
    def unknown_rate(self) -> float:
        return self.n_unknown / max(self.n_tokens, 1)


class SplitReport(Config):
    """What became of one split's examples: n_read = n_kept + n_empty + n_dropped + the removed ones."""

    name: str
    n_read: int
    n_empty: int
    """Left out: nothing on one side."""
    n_duplicates: int
    """Equal to an earlier example on every side."""
    n_duplicates_removed: int
    n_overlap_removed: int
    """Left out: the source is in another split too."""
    n_dropped: int
    """Left out: longer than the limit."""
    n_cut: int
    """Kept up to the limit."""
    n_kept: int
    sides: tuple[SideReport, ...]


class OverlapReport(Config):
    """Sources of one split that are also in an earlier one: a score on them measures memory."""

    split: str
    other: str
    n_shared: int
    """Examples of `split` whose source is in `other`, before anything was removed."""
    share: float
    example: str | None
    """The first of them."""


class DataReport(Config):
    """All that was counted; `lines()` for people, `model_dump()` for programs."""

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


@dataclass(frozen=True)
class Prepared:
    """What is kept of each split, as text and as ids (a list of examples a side), and what was counted."""

    examples: dict[str, Pairs | Texts]
    ids: dict[str, tuple[list[list[int]], ...]]
    report: DataReport


def prepare(splits: Mapping[str, Pairs | Texts], tokenizer: Tokenizer, *, preparation: Preparation) -> Prepared:
    """Apply the policy to every split, and count.

    Only the split `train` loses examples for being long, repeated or shared; in the others what is too long
    is cut, so that a score is over all examples that have both sides. The limit is for pairs: texts are read
    in windows. Raises UserError where nothing is left of a split.
    """
    elsewhere = {source for name, split in splits.items() if name != TRAIN for source in _sources(split)}
    examples: dict[str, Pairs | Texts] = {}
    ids: dict[str, tuple[list[list[int]], ...]] = {}
    reports: list[SplitReport] = []
    for name, split in splits.items():
        work = _Work(name, split, tokenizer, preparation)
        work.leave_out_empty()
        work.leave_out_duplicates()
        work.leave_out_shared(elsewhere)
        work.limit_lengths()
        if not work.ids[0]:
            raise UserError(f"{name}: expected examples, got none: all {len(split)} left out; try a higher max_length")
        examples[name], ids[name] = work.examples(), work.ids
        reports.append(work.report())
    report = DataReport(
        vocab_size=tokenizer.vocab_size,
        max_length=preparation.max_length,
        splits=tuple(reports),
        overlaps=_overlaps(splits),
    )
    return Prepared(examples, ids, report)


@dataclass
class _Work:
    """One split on its way through the policy."""

    name: str
    split: Pairs | Texts
    tokenizer: Tokenizer
    preparation: Preparation
    columns: tuple[list[str], ...] = field(init=False)
    ids: tuple[list[list[int]], ...] = field(init=False)
    counts: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.columns = _columns(self.split)
        self.ids = tuple(self.tokenizer.encode_batch(c, target=i > 0) for i, c in enumerate(self.columns))
        self.counts = dict.fromkeys(
            ("empty", "duplicates", "duplicates_removed", "overlap_removed", "dropped", "cut"), 0
        )

    @property
    def is_train(self) -> bool:
        return self.name == TRAIN

    def keep(self, kept: Sequence[bool]) -> int:
        """Leave out the others; how many they were."""
        n_before = len(self.ids[0])
        self.columns = tuple([t for t, keep in zip(c, kept, strict=True) if keep] for c in self.columns)
        self.ids = tuple([i for i, keep in zip(c, kept, strict=True) if keep] for c in self.ids)
        return n_before - len(self.ids[0])

    def leave_out_empty(self) -> None:
        texts, ids = zip(*self.columns, strict=True), zip(*self.ids, strict=True)
        kept = [all(t.strip() for t in text) and all(i) for text, i in zip(texts, ids, strict=True)]
        self.counts["empty"] = self.keep(kept)

    def leave_out_duplicates(self) -> None:
        seen: set[tuple[str, ...]] = set()
        first: list[bool] = []
        for example in zip(*self.columns, strict=True):
            first.append(example not in seen)
            seen.add(example)
        self.counts["duplicates"] = first.count(False)
        if self.is_train and self.preparation.remove_duplicates:
            self.counts["duplicates_removed"] = self.keep(first)

    def leave_out_shared(self, elsewhere: set[str]) -> None:
        if self.is_train and self.preparation.remove_overlap:
            kept = [source.strip() not in elsewhere for source in self.columns[0]]
            self.counts["overlap_removed"] = self.keep(kept)

    def limit_lengths(self) -> None:
        limit = self.preparation.max_length
        if limit is None or isinstance(self.split, Texts):
            return
        fits = [max(map(len, sides)) <= limit for sides in zip(*self.ids, strict=True)]
        if self.is_train and self.preparation.too_long == "drop":
            self.counts["dropped"] = self.keep(fits)
            return
        self.counts["cut"] = fits.count(False)
        for side, (column, ids) in enumerate(zip(self.columns, self.ids, strict=True)):
            for i, sequence in enumerate(ids):
                if len(sequence) > limit:
                    column[i], ids[i] = _cut(column[i], limit, self.tokenizer, target=side > 0)

    def examples(self) -> Pairs | Texts:
        return Texts(*self.columns) if isinstance(self.split, Texts) else Pairs(*self.columns)

    def report(self) -> SplitReport:
        names = ("text",) if isinstance(self.split, Texts) else ("source", "target")
        sides: list[SideReport] = []
        for name, ids in zip(names, self.ids, strict=True):
            lengths = [len(sequence) for sequence in ids]
            unknown = self.tokenizer.unk_id
            n_unknown = 0 if unknown is None else sum(sequence.count(unknown) for sequence in ids)
            sides.append(
                SideReport(
                    name=name,
                    n_tokens=sum(lengths),
                    mean_length=sum(lengths) / len(lengths),
                    max_length=max(lengths),
                    n_unknown=n_unknown,
                )
            )
        return SplitReport(
            name=self.name,
            n_read=len(self.split),
            n_kept=len(self.ids[0]),
            sides=tuple(sides),
            n_empty=self.counts["empty"],
            n_duplicates=self.counts["duplicates"],
            n_duplicates_removed=self.counts["duplicates_removed"],
            n_overlap_removed=self.counts["overlap_removed"],
            n_dropped=self.counts["dropped"],
            n_cut=self.counts["cut"],
        )


def _columns(split: Pairs | Texts) -> tuple[list[str], ...]:
    return (split.text,) if isinstance(split, Texts) else (split.source, split.target)


def _sources(split: Pairs | Texts) -> list[str]:
    return [source for text in _columns(split)[0] if (source := text.strip())]


def _cut(text: str, limit: int, tokenizer: Tokenizer, *, target: bool) -> tuple[str, list[int]]:
    """The longest beginning of `text` that ends with a token and whose own ids are at most `limit`.

    A beginning may be split otherwise than the whole was, so its ids are made anew.
    """
    ends = [end for _, end in tokenizer.offsets(text)]
    for end in reversed(ends[:limit]):
        ids = tokenizer.encode(text[:end], target=target)
        if len(ids) <= limit:
            return text[:end], ids
    return "", []


def _overlaps(splits: Mapping[str, Pairs | Texts]) -> tuple[OverlapReport, ...]:
    """For every split and each one before it."""
    sources = {name: _sources(split) for name, split in splits.items()}
    names, found = list(sources), list[OverlapReport]()
    for i, other in enumerate(names):
        known = set(sources[other])
        for name in names[i + 1 :]:
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
