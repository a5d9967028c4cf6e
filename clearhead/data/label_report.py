"""The report on labelled texts before training: sizes, lengths, balance, duplicates, overlaps. Imports no torch."""

from collections import Counter
from collections.abc import Sequence

from clearhead.config import Config
from clearhead.data.labelled import LabelledText

MOST_NAMES = 12
"""Labels that are listed by name."""


class LabelledSplit(Config):
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
    n_duplicates: int
    """Examples whose text an earlier one has, apart from case and white space."""
    n_contradicting: int
    """Duplicates with another label than the earlier one."""
    contradiction: str
    """The place of the first of them."""
    n_shared: int
    """Examples whose text is also in training, apart from case and white space."""
    shared: str
    """The place of the first of them, and its place in training."""

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
        if self.n_duplicates:
            lines.append(f"  {self.n_duplicates:,} duplicates, kept")
        if self.n_contradicting:
            lines.append(f"  {self.n_contradicting:,} of them with another label, such as {self.contradiction}")
        if self.n_shared:
            share = self.n_shared / max(self.n_read, 1)
            lines.append(f"  {self.n_shared:,} ({share:.1%}) are also in train, such as {self.shared}")
        return lines


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
    first: dict[str, LabelledText] = {}
    duplicates = [example for example in told if first.setdefault(example.normalized, example) is not example]
    contradicting = [e for e in duplicates if {*e.labels} != {*first[e.normalized].labels}]
    others: Sequence[LabelledText] = () if name == "train" else train
    known = {example.normalized: example.where for example in reversed(others)}
    shared = [example for example in told if example.normalized in known]
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
        n_duplicates=len(duplicates),
        n_contradicting=len(contradicting),
        contradiction=contradicting[0].where if contradicting else "",
        n_shared=len(shared),
        shared=f"{shared[0].where}, which is {known[shared[0].normalized]}" if shared else "",
    )
