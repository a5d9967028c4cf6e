"""The report on labelled texts before training: sizes, lengths, balance, duplicates, overlaps. Imports no torch."""

from collections import Counter
from collections.abc import Sequence

from clearhead.config import Config
from clearhead.data.labelled import LabelledText
from clearhead.data.repeats import Repeats, repeats

MOST_NAMES = 12
"""Labels that are listed by name."""


class LabelledSplit(Repeats):
    """One split."""

    name: str
    n_read: int
    n_blank: int
    """Left out because a text is empty."""
    mean_length: float
    """Mean tokens an example, special ones included, before cutting."""
    max_length: int
    n_cut: int
    """Examples of more tokens than the limit, of which only the beginning is read."""
    longest: str
    """The place of the longest of them."""
    labels: dict[str, int]
    """How many examples have each label; empty for a regression."""

    def lines(self, limit: int) -> list[str]:
        """The findings as text."""
        left_out = f" ({self.n_blank:,} empty, left out)" if self.n_blank else ""
        cut = f"; {self.n_cut:,} cut to {limit:,}, the longest of them {self.longest}" if self.n_cut else ""
        size = f"{self.n_read - self.n_blank:,} of {self.n_read:,} examples{left_out}"
        lines = [f"{self.name}: {size}, {self.mean_length:.1f} tokens each, at most {self.max_length:,}{cut}"]
        if self.labels:
            n = max(sum(self.labels.values()), 1)
            some = [f"{name} {count / n:.1%}" for name, count in list(self.labels.items())[:MOST_NAMES]]
            rest = len(self.labels) - len(some)
            lines.append(f"  labels: {', '.join(some)}{f' and {rest} more' if rest else ''}")
            if none := [name for name, count in self.labels.items() if not count]:
                lines.append(f"  no example of {', '.join(none[:MOST_NAMES])}: its scores say nothing about that")
        return lines + self.repeated(self.n_read, another="with another label")


class LabelReport(Config):
    """All counts. `lines()` is for people, `model_dump()` for programs."""

    vocab_size: int
    max_length: int
    splits: tuple[LabelledSplit, ...]

    def lines(self) -> list[str]:
        """The report as plain text, one finding a line."""
        found = [line for split in self.splits for line in split.lines(self.max_length)]
        return [f"vocabulary: {self.vocab_size:,} tokens", *found]


def labelled_split(
    name: str,
    examples: Sequence[LabelledText],
    lengths: Sequence[int],
    *,
    names: Sequence[str],
    limit: int,
    train: Sequence[LabelledText],
) -> LabelledSplit:
    """The report on a split whose examples that are not blank have these lengths."""
    told = [example for example in examples if not example.is_blank]
    others: Sequence[LabelledText] = () if name == "train" else train
    counts = Counter(label for example in told for label in example.labels)
    return LabelledSplit(
        name=name,
        n_read=len(examples),
        n_blank=len(examples) - len(told),
        mean_length=sum(lengths) / max(len(lengths), 1),
        max_length=max(lengths, default=0),
        n_cut=sum(length > limit for length in lengths),
        longest=max(zip(lengths, told, strict=True), key=lambda pair: pair[0])[1].where if told else "",
        labels={label: counts[label] for label in names},
        **repeats(told, others, labels=lambda one: frozenset(one.labels), place=lambda one: one.where),
    )
