"""The report on labelled pictures before training: sizes, balance, duplicates, overlaps. Imports no torch."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Self

from clearhead.config import Config
from clearhead.data.label_report import MOST_NAMES
from clearhead.data.labelled import LabelledText


class PictureSplit(Config):
    """One split."""

    name: str
    n: int
    labels: dict[str, int]
    n_duplicates: int
    """Pictures with the same pixels as an earlier one."""
    n_contradicting: int
    """Duplicates of another class than the earlier one."""
    contradiction: str
    """The place of the first of them."""
    n_shared: int
    """Pictures that are also in training."""
    shared: str
    """The place of the first of them."""

    @classmethod
    def of(
        cls, name: str, pictures: Sequence[LabelledText], labels: Sequence[str], train: Sequence[LabelledText]
    ) -> Self:
        """The counts of a split."""
        first: dict[str, LabelledText] = {}
        again = [one for one in pictures if first.setdefault(one.texts[0], one) is not one]
        wrong = [one for one in again if one.labels != first[one.texts[0]].labels]
        known = set() if name == "train" else {one.texts[0] for one in train}
        shared = [one for one in pictures if one.texts[0] in known]
        counts = Counter(label for one in pictures for label in one.labels)
        return cls(
            name=name,
            n=len(pictures),
            labels={label: counts[label] for label in labels},
            n_duplicates=len(again),
            n_contradicting=len(wrong),
            contradiction=wrong[0].where if wrong else "",
            n_shared=len(shared),
            shared=shared[0].where if shared else "",
        )

    def lines(self) -> list[str]:
        """The findings as text."""
        some = [f"{name} {count / self.n:.1%}" for name, count in list(self.labels.items())[:MOST_NAMES]]
        rest = len(self.labels) - len(some)
        found = [f"{self.name}: {self.n:,} pictures", f"  classes: {', '.join(some)}{f' and {rest} more' * bool(rest)}"]
        if self.n_duplicates:
            found.append(f"  {self.n_duplicates:,} duplicates, kept")
        if self.n_contradicting:
            found.append(f"  {self.n_contradicting:,} of them of another class, such as {self.contradiction}")
        if self.n_shared:
            found.append(f"  {self.n_shared:,} ({self.n_shared / self.n:.1%}) are also in train, such as {self.shared}")
        return found


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
