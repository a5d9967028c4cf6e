"""The report on labelled pictures before training: sizes, balance, duplicates, overlaps. Imports no torch."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Self

from clearhead.config import Config
from clearhead.data.label_report import MOST_NAMES
from clearhead.data.labelled import LabelledText
from clearhead.data.repeats import Repeats, repeats


class PictureSplit(Repeats):
    """One split. Pictures with the same pixels are equal."""

    name: str
    n: int
    labels: dict[str, int]

    @classmethod
    def of(
        cls, name: str, pictures: Sequence[LabelledText], labels: Sequence[str], train: Sequence[LabelledText]
    ) -> Self:
        """The counts of a split."""
        others: Sequence[LabelledText] = () if name == "train" else train
        counts = Counter(label for one in pictures for label in one.labels)
        return cls(
            name=name,
            n=len(pictures),
            labels={label: counts[label] for label in labels},
            **repeats(pictures, others, labels=lambda one: one.labels, place=lambda one: one.where),
        )

    def lines(self) -> list[str]:
        """The findings as text."""
        some = [f"{name} {count / self.n:.1%}" for name, count in list(self.labels.items())[:MOST_NAMES]]
        rest = len(self.labels) - len(some)
        found = [f"{self.name}: {self.n:,} pictures", f"  classes: {', '.join(some)}{f' and {rest} more' * bool(rest)}"]
        return found + self.repeated(self.n, another="of another class")


class PictureReport(Config):
    """All counts."""

    channels: int
    height: int
    width: int
    splits: tuple[PictureSplit, ...]

    @classmethod
    def of(cls, shape: Sequence[int], splits: Mapping[str, Sequence[LabelledText]], labels: Sequence[str]) -> Self:
        """The report on these splits, whose pictures have so many channels, rows and columns."""
        found = tuple(PictureSplit.of(name, split, labels, splits["train"]) for name, split in splits.items())
        channels, height, width = shape
        return cls(channels=channels, height=height, width=width, splits=found)

    def lines(self) -> list[str]:
        """The report as plain text, one finding a line."""
        kind = "grey" if self.channels == 1 else "in colour"
        found = [line for split in self.splits for line in split.lines()]
        return [f"pictures: {self.height} x {self.width} pixels, {kind}", *found]
