"""What there is to train on, told before training: kept, left out, cut, repeated, or in two splits at once.

`preparation.py` does it and counts as it goes. Imports no torch.
"""

from clearhead.config import Config


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
