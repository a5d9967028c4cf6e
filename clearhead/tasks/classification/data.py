"""Texts with labels: reads them from tables, checks every row, encodes and reports on them. No torch."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self

from pydantic import Field, PositiveInt

from clearhead.brief import brief
from clearhead.config import ModelConfig
from clearhead.config.heads import ClassificationHead, ProblemType
from clearhead.data.bad_rows import BadRow
from clearhead.data.sources import examples_of
from clearhead.data.splits import complete_splits
from clearhead.data.tables import MISSING, alone, number_of, parts_of, texts_of, written
from clearhead.errors import UserError
from clearhead.recipe.data import SPLITS, Column, HubDataset, Source, Table, TestedData
from clearhead.tasks.reports import check_known
from clearhead.text.special_tokens import template_tokens
from clearhead.text.tokenizers import Tokenizer


class ClassificationData(TestedData):
    """Texts with labels, in the columns of a table or dataset. Its sources name the column of the text."""

    text_pair: Column | None = None
    """Column of the second text, if a label belongs to a pair of texts."""
    label: Column | Annotated[tuple[Column, ...], Field(min_length=2)] = "label"
    """Column of the labels. With several columns of 0 and 1, a text may have any number of labels."""
    problem_type: ProblemType = "single_label_classification"
    """Whether a text has one label, any number of labels, or a number to predict."""
    separator: Annotated[str, Field(min_length=1)] = "|"
    """Separates the labels of a text that may have several."""
    no_label: str | None = None
    """What stands for the label of a text that has none, such as "-" in SNLI. Such texts are left out."""
    max_length: PositiveInt = 256
    """Most tokens of an example, special ones included; longer ones are cut."""


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
    def placed(self) -> Iterator[tuple[str, str]]:
        """Each label and its place."""
        return ((name, self.where) for name in self.labels)

    @property
    def is_blank(self) -> bool:
        """True if one of its texts is blank."""
        return not all(text.strip() for text in self.texts)


def read_labelled(source: Source, data: ClassificationData) -> list[LabelledText]:
    """Every example of a source, in order.

    Raises UserError, which names the row, for a label that is missing or no number where one is expected.
    """
    if not isinstance(source, Table | HubDataset) or source.text is None:
        raise UserError(f'{source.kind}: expected a table with a column of texts, got none; try text = "NAME"')
    names = data.label if isinstance(data.label, tuple) else (data.label,)
    columns = [source.text, *([] if data.text_pair is None else [data.text_pair])]
    n = len(columns)

    def make(where: str, cells: list[object]) -> LabelledText:
        label = cells[n] if len(names) == 1 else _set_flags(names, cells[n:], where)
        return LabelledText(texts_of(columns, where, cells[:n]), _labels(label, data, where), where)

    examples = examples_of(source, [*columns, *names], make)
    return [example for example in examples if example.labels != (data.no_label,)]


def _set_flags(names: Sequence[Column], cells: Sequence[object], where: str) -> list[object]:
    """The names of the columns whose cell is 1. Raises BadRow for a cell that is neither 0 nor 1."""
    said = dict(zip(names, map(written, cells), strict=True))
    for name, text in said.items():
        if text.lower() not in ("0", "1", "false", "true"):
            raise UserError(
                f"{where}: expected 0 or 1 in column {name!r}, got {text!r}; mend it or leave the column out"
            )
    return [name for name, text in said.items() if text.lower() in ("1", "true")]


def _labels(cell: object, data: ClassificationData, where: str) -> tuple[str, ...]:
    if data.problem_type == "multi_label_classification":
        return tuple(dict.fromkeys(part for part in parts_of(cell, data.separator) if part.lower() not in MISSING))
    if not isinstance(cell := alone(cell), str | int | float | None):
        raise UserError(
            f"{where}: expected one label in column {data.label!r}, got {cell!r};"
            ' try data.problem_type = "multi_label_classification"'
        )
    name = written(cell)
    if name.lower() in MISSING:
        raise BadRow(
            f"{where}: expected a label in column {data.label!r}, got {name or 'none'}; fill it in or delete the row"
        )
    if data.problem_type == "regression" and number_of(name) is None:
        raise BadRow(
            f"{where}: expected a number in column {data.label!r}, got {name!r}; mend it,"
            ' or try data.problem_type = "single_label_classification"'
        )
    return (name,)


def names_of(examples: Iterable[LabelledText]) -> tuple[str, ...]:
    """The distinct labels in order: numbers by value, anything else by letters."""
    names = {name for example in examples for name in example.labels}
    numbers = {name: number_of(name) for name in names}
    return tuple(sorted(names, key=lambda name: (numbers[name] is None, numbers[name] or 0.0, name)))


# --- splits ---------------------------------------------------------------------------------------------------------


def split_labelled(splits: dict[str, list[LabelledText]], data: ClassificationData) -> dict[str, list[LabelledText]]:
    """The splits, each with the examples whose texts are blank; those without a source are held out of training.

    Raises UserError if there are too few examples, and for labels that cannot be learnt.
    """
    is_number = data.problem_type == "regression"
    if not is_number:
        _check_labels(splits["train"], data.label)
    what = "texts to hold some of each label out"
    splits = complete_splits(splits, data.held_out, by_label=not is_number, expected=what)
    if not is_number:
        check_splits(splits, what="texts")
    return splits


def check_splits(splits: Mapping[str, Sequence[LabelledText]], *, what: str) -> None:
    """Raises UserError for an example with a label that training does not have."""
    names = names_of(splits["train"])
    for split, examples in splits.items():
        check_known(examples, names, remedy=f"correct it, or move {what} of it from {SPLITS[split]} to training")


def _check_labels(train: Sequence[LabelledText], label: object) -> None:
    names, place = names_of(train), f"{train[0].where.rpartition(':')[0]}: column {label!r}"
    if len(names) < 2:
        raise UserError(f"{place}: expected at least 2 labels, got {', '.join(names) or 'none'}; try another column")
    if len(names) > max(20, sum(len(example.labels) for example in train) // 2):
        raise UserError(
            f"{place}: expected labels that several texts share, got {len(names)} labels for {len(train)} texts;"
            ' try another column, or data.problem_type = "regression" for numbers'
        )
    filled = {*names_of(example for example in train if not example.is_blank)}
    for example in train:
        for name in {*example.labels} - filled:
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

    @property
    def read(self) -> dict[str, Any]:
        """What the network reads, as `batch_of` takes it."""
        return {"ids": self.ids, "types": self.types, "start": self.start}

    def take(self, rows: Sequence[int]) -> Self:
        """The inputs with these numbers."""
        types = None if self.types is None else [self.types[i] for i in rows]
        return replace(self, ids=[self.ids[i] for i in rows], types=types, lengths=[self.lengths[i] for i in rows])

    @property
    def sizes(self) -> list[int]:
        """The number of tokens of each text or pair."""
        return [*map(len, self.ids)]


MOST_NAMES = 12
"""Labels that are listed by name."""
