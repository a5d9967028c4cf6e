"""Texts with labels: reads them from tables, checks every row, holds some out. Imports no torch."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from clearhead.config.heads import ProblemType
from clearhead.data.sources import cells_of
from clearhead.data.tables import text_of
from clearhead.errors import UserError
from clearhead.randomness import key
from clearhead.recipe.data import SPLITS, Column, Data, HeldOut, HubDataset, Source, Table, share_of

MISSING = {"", "nan", "null", "<na>", "#n/a"}
"""What programs write where a label is missing, in lower case."""


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


class Example(Protocol):
    """An example of a data set from which some are held out."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels. Each part gets its share of the examples of each."""
        ...

    @property
    def normalized(self) -> str:
        """What examples of one part have in common."""
        ...


E = TypeVar("E", bound=Example)


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


def written(cell: object) -> str:
    """A label as text. Programs write 3 as 3.0 in a column where a number is missing."""
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return "" if cell is None else str(cell).strip()


def number_of(text: str) -> float | None:
    """The finite number that a text writes, if it does."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


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


def labelled_splits(data: Data, labelling: Labelling, held_out: HeldOut) -> dict[str, list[LabelledText]]:
    """The splits of a recipe's data, each with the examples whose texts are blank.

    Without a source for validation, holds out some of the training texts for it, and as much for a test
    if there is no source for that either. Raises UserError if there are too few, and for labels that cannot be learnt.
    """
    splits = {split: labelling.read(source) for split, source in data.sources.items()}
    is_number = labelling.problem_type == "regression"
    if not is_number:
        _check_labels(splits["train"], labelling)
    what = "texts to hold some of each label out"
    splits = complete_splits(splits, held_out, by_label=not is_number, expected=what)
    for split, examples in splits.items() if not is_number else ():
        names, remedy = names_of(splits["train"]), f"correct it, or move texts of it from {SPLITS[split]} to training"
        check_known(examples, names, remedy=remedy)
    return splits


def complete_splits(
    splits: Mapping[str, list[E]], held_out: HeldOut, *, expected: str, by_label: bool = True
) -> dict[str, list[E]]:
    """The splits; without one for validation, some of training is held out for it, and as much for a missing test.

    A number of examples is held out as that share of each label. Raises UserError, which names what was `expected`, if
    there are too few examples.
    """
    found = dict(splits)
    if "valid" not in found:
        parts = ("valid",) if "test" in found else ("valid", "test")
        n = len({one.normalized for one in found["train"]})
        share = share_of(held_out, n, expected.partition(",")[0].partition(" to ")[0], parts=len(parts))
        *held, train = hold_out(found["train"], [share] * len(parts), by_label=by_label)
        if not all(held):
            raise UserError(f"data.train: expected more {expected}, got {n}; give data.valid")
        found |= dict(zip(parts, held, strict=True)) | {"train": train}
    return {split: found[split] for split in SPLITS if split in found}


def hold_out(examples: Sequence[E], shares: Sequence[float], *, by_label: bool) -> list[list[E]]:
    """Parts of the examples with these shares, then the rest.

    With `by_label`, each part has its share of every label, or of the rarest one of each text, and the rest is never
    without it. Equal texts are in the same part. The choice depends on the texts alone, not on their order.
    """
    counts = Counter(name for example in examples for name in example.labels)
    groups: dict[str, list[E]] = {}
    for example in examples:
        groups.setdefault(example.normalized, []).append(example)
    strata: dict[str, list[str]] = {}
    for text, group in groups.items():
        names = (name for example in group for name in example.labels)
        rarest = min(names, key=lambda name: (counts[name], name), default="")
        strata.setdefault(rarest if by_label else "", []).append(text)
    part_of: dict[str, int] = {}
    for texts in strata.values():
        texts.sort(key=lambda text: key("held out", text))
        bounds = [min(round(sum(shares[: i + 1]) * len(texts)), len(texts) - 1) for i in range(len(shares))]
        for i, text in enumerate(texts):
            part_of[text] = sum(i >= bound for bound in bounds)
    parts: list[list[E]] = [[] for _ in range(len(shares) + 1)]
    for example in examples:
        parts[part_of[example.normalized]].append(example)
    return parts


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
