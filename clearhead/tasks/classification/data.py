"""Texts with labels: reads them from tables, checks every row, encodes and reports on them. No torch."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from clearhead.brief import brief
from clearhead.config import ModelConfig
from clearhead.config.heads import ClassificationHead, ProblemType
from clearhead.data.sources import cells_of
from clearhead.data.splits import Repeats, ReportedSplit, complete_splits, repeats, shares_line
from clearhead.data.tables import MISSING, number_of, text_of, written
from clearhead.errors import UserError
from clearhead.recipe.data import SPLITS, Column, HeldOut, HubDataset, Source, Table
from clearhead.text.special_tokens import template_tokens
from clearhead.text.tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class LabelledText:
    """One text, or two that have one label together."""

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    """Its label; any number of them where a text may have several; a number as text for a regression."""
    where: str
    """Its place, such as `reviews.csv:17`."""

    @property
    def normalized(self) -> str:
        """Equal for texts that differ only in case and white space."""
        return "\t".join(" ".join(text.casefold().split()) for text in self.texts)

    @property
    def place(self) -> str:
        """Its file's name and its row."""
        return self.where.rpartition("/")[2]

    @property
    def is_blank(self) -> bool:
        """Whether one of its texts is blank."""
        return not all(text.strip() for text in self.texts)


@dataclass(frozen=True)
class Labelling:
    """Where the texts and labels of a source are, and what the labels mean."""

    text_pair: Column | None = None
    label: Column = "label"
    problem_type: ProblemType = "single_label_classification"
    separator: str = "|"

    def read(self, source: Source) -> list[LabelledText]:
        """Every example of a source, in order.

        Raises UserError, which names the row, for a label that is missing or no number where one is expected.
        """
        if not isinstance(source, Table | HubDataset) or source.text is None:
            raise UserError(f'{source.kind}: expected a table with a column of texts, got none; try text = "NAME"')
        columns = [source.text, *([] if self.text_pair is None else [self.text_pair]), self.label]
        examples: list[LabelledText] = []
        for where, (*texts, label) in cells_of(source, columns):
            found = tuple(text_of(text, where=f"{where}:{name}") for name, text in zip(columns, texts, strict=False))
            examples.append(LabelledText(found, self._labels(label, where), where))
        return examples

    def _labels(self, cell: object, where: str) -> tuple[str, ...]:
        is_several = self.problem_type == "multi_label_classification"
        if is_several:
            parts = cell if isinstance(cell, list) else written(cell).split(self.separator)
            return tuple(dict.fromkeys(name for part in parts if (name := written(part)).lower() not in MISSING))
        if not isinstance(cell, str | int | float | None):
            raise UserError(
                f"{where}: expected one label in column {self.label!r}, got {cell!r};"
                ' try data.problem_type = "multi_label_classification"'
            )
        name = written(cell)
        if name.lower() in MISSING:
            raise UserError(
                f"{where}: expected a label in column {self.label!r}, got {name or 'none'};"
                " fill it in or delete the row"
            )
        if self.problem_type == "regression" and number_of(name) is None:
            raise UserError(
                f"{where}: expected a number in column {self.label!r}, got {name!r}; mend it,"
                ' or try data.problem_type = "single_label_classification"'
            )
        return (name,)


def names_of(examples: Iterable[LabelledText]) -> tuple[str, ...]:
    """The distinct labels in order: numbers by value, anything else by letters."""
    names = {name for example in examples for name in example.labels}
    numbers = {name: number_of(name) for name in names}
    return tuple(sorted(names, key=lambda name: (numbers[name] is None, numbers[name] or 0.0, name)))


def check_known(examples: Iterable[LabelledText], names: Sequence[str], *, remedy: str) -> None:
    """Raises UserError for the first example with a label that is not one of `names`."""
    known = set(names)
    for example in examples:
        for name in example.labels:
            if name not in known:
                some = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
                raise UserError(
                    f"{example.where}: expected a label of the training data ({some}), got {name}; {remedy}"
                )


# --- splits ---------------------------------------------------------------------------------------------------------


def split_labelled(
    splits: dict[str, list[LabelledText]], labelling: Labelling, held_out: HeldOut
) -> dict[str, list[LabelledText]]:
    """The splits, each with the examples whose texts are blank; those without a source are held out of training.

    Raises UserError if there are too few examples, and for labels that cannot be learnt.
    """
    is_number = labelling.problem_type == "regression"
    if not is_number:
        _check_labels(splits["train"], labelling)
    what = "texts to hold some of each label out"
    splits = complete_splits(splits, held_out, by_label=not is_number, expected=what)
    if not is_number:
        check_splits(splits, what="texts")
    return splits


def check_splits(splits: Mapping[str, Sequence[LabelledText]], *, what: str) -> None:
    """Raises UserError for an example with a label that training does not have."""
    names = names_of(splits["train"])
    for split, examples in splits.items():
        remedy = f"correct it, or move {what} of it from {SPLITS[split]} to training"
        check_known(examples, names, remedy=remedy)


def _check_labels(train: Sequence[LabelledText], labelling: Labelling) -> None:
    names, place = names_of(train), f"{train[0].where.rpartition(':')[0]}: column {labelling.label!r}"
    if len(names) < 2:
        raise UserError(f"{place}: expected at least 2 labels, got {', '.join(names) or 'none'}; try another column")
    if len(names) > max(20, len(train) // 2):
        raise UserError(
            f"{place}: expected labels that several texts share, got {len(names)} labels for {len(train)} texts;"
            ' try another column, or data.problem_type = "regression" for numbers'
        )
    filled = set(names_of(example for example in train if not example.is_blank))
    for example in train:
        for name in example.labels:
            if name not in filled:
                raise UserError(f"{example.where}: expected a text of the label {name}, got only empty ones; add some")


NO_LIMIT = 1 << 30
"""The length to which nothing is cut."""


def until_padding(ids: list[int], config: ModelConfig, pad_id: int | None) -> list[int]:
    """The ids that a classifier reads. One that reads the last state ignores padding tokens at a text's end."""
    head = config.head
    if config.decoder is None or not isinstance(head, ClassificationHead) or head.pool != "last":
        return ids
    n = next((i for i in range(len(ids), 0, -1) if ids[i - 1] != pad_id), 1)
    return ids[:n]


@dataclass(frozen=True)
class Inputs:
    """Texts as ids with the marks of the tokenizer's template, cut to a length."""

    __repr__ = brief

    ids: list[list[int]]
    types: list[list[int]] | None
    """Which text of a pair each id belongs to; None for single texts."""
    lengths: list[int]
    """Tokens before cutting."""
    start: int | None = None
    """The token with which the decoder of an encoder-decoder begins to read each text again; None without one."""

    @classmethod
    def of(cls, texts: Sequence[tuple[str, ...]], tokenizer: Tokenizer, limit: int) -> Self:
        """Encodes single texts, or pairs. Raises UserError for a mixture of both.

        The longer text of a pair is cut first. A text of which the tokenizer makes nothing, not even marks, becomes its
        unknown token.
        """
        sizes = {len(both) for both in texts}
        if len(sizes) > 1:
            raise UserError("texts: expected all single or all pairs, got both; mend the rows")
        if 2 in sizes:
            pairs = [tokenizer.encode_pair(*both) for both in texts]
            cut = [
                pair if len(pair[0]) <= limit else tokenizer.encode_pair(*both, limit=limit)
                for both, pair in zip(texts, pairs, strict=True)
            ]
            ids, types = (list(side) for side in zip(*cut, strict=True))
            return cls(ids, types, [len(ids) for ids, _ in pairs])
        marks, nothing = template_tokens(tokenizer), [tokenizer.unk_id or 0]
        bare = tokenizer.encode_batch([text for (text,) in texts])
        ids = [marks.around(ids[: max(limit - len(marks), 0)]) or nothing for ids in bare]
        return cls(ids, None, [len(ids) + len(marks) for ids in bare])

    def take(self, rows: Sequence[int]) -> Self:
        """The inputs with these numbers."""
        types = None if self.types is None else [self.types[i] for i in rows]
        return replace(self, ids=[self.ids[i] for i in rows], types=types, lengths=[self.lengths[i] for i in rows])

    @property
    def sizes(self) -> list[int]:
        """The tokens of each text or pair."""
        return [*map(len, self.ids)]


MOST_NAMES = 12
"""Labels that are listed by name."""


class LabelledSplit(Repeats, ReportedSplit):
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
            lines.append(f"  labels: {shares_line(self.labels, MOST_NAMES)}")
            if none := [name for name, count in self.labels.items() if not count]:
                lines.append(f"  no example of {', '.join(none[:MOST_NAMES])}: its scores say nothing about that")
        return lines + self.repeated(self.n_read, another="with another label")


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
    kept = [example for example in examples if not example.is_blank]
    others: Sequence[LabelledText] = () if name == "train" else train
    counts = Counter(label for example in kept for label in example.labels)
    return LabelledSplit(
        name=name,
        n_read=len(examples),
        n_blank=len(examples) - len(kept),
        mean_length=sum(lengths) / max(len(lengths), 1),
        max_length=max(lengths, default=0),
        n_cut=sum(length > limit for length in lengths),
        longest=max(zip(lengths, kept, strict=True), key=lambda pair: pair[0])[1].where if kept else "",
        labels={label: counts[label] for label in names},
        **repeats(kept, others, labels=lambda one: frozenset(one.labels), place=lambda one: one.where),
    )
