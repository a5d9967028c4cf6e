"""The report on the data before training: examples kept, left out, cut, repeated, or shared by two splits.

`preparation.py` counts them. Imports no torch.
"""

from typing import Protocol

from clearhead.config import Config


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
