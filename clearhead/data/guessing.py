"""Guesses which columns of a table hold the texts and the labels. Imports no torch."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from clearhead.config.heads import ProblemType
from clearhead.data.files import nearest, read_lines
from clearhead.data.sniffing import SEPARATORS, sniff
from clearhead.data.tables import column_names, format_of, number_of, read_rows, written
from clearhead.errors import UserError
from clearhead.recipe.data import Column, Table
from clearhead.recipe.places import Place, absolute

TEXT_NAMES = ("text", "body", "sentence", "content", "review", "comment", "message", "description", "document")
LABEL_NAMES = ("label", "labels", "class", "category", "topic", "sentiment", "target", "intent", "score", "rating", "y")
MOST_LABELS = 100
"""A column of labels has at most so many among the rows of the sample."""
Columns: TypeAlias = Mapping[Column, Sequence[object]]
"""The cells of each column in the sample, by its name, or by its index if there is no header."""


@dataclass(frozen=True)
class Guess:
    """Tables of a recipe, and each guess with its reason."""

    tables: dict[str, Any]
    reasons: list[str]


def is_table(name: str) -> bool:
    """Returns True if a name is that of a table file."""
    return format_of(name) is not None


def guess(path: Place, *, text: str | None = None, text_pair: str | None = None, label: str | None = None) -> Guess:
    """The `data` of a recipe for a table of labelled texts.

    Guesses each column unless it is given, by its name, or by its index if the table has no header.
    Raises UserError if a column is missing, or if several columns may be meant.
    """
    given = {"text": text, "text_pair": text_pair, "label": label}
    names = {role: name for role, name in given.items() if name is not None}
    found = sniff(path, given=names)
    reasons, columns = (
        [f"{each.what}: {each.value}; another with {each.option}" for each in found.decisions],
        found.columns,
    )
    seen = {column: [cells[i] for cells in found.rows] for i, column in enumerate(columns)}
    chosen = {role: _need(path, columns, name) for role, name in names.items()}
    for role, choose in (("text", _text), ("label", _label)):
        if role not in chosen:
            free = {column: cells for column, cells in seen.items() if column not in chosen.values()}
            chosen[role], why = choose(path, free)
            reasons.append(f"{role}: column {chosen[role]!r} ({why}); another with --{role}")
    problem, why = _problem(seen[chosen["label"]])
    reasons.append(f"task: {problem.replace('_', ' ')} ({why}); another with --data.problem_type")
    train = _described(found.splits["train"]) | {"text": chosen.pop("text")}
    return Guess({"train": train, "problem_type": problem, **chosen}, reasons)


def table_of(path: Place, columns: Mapping[str, str]) -> dict[str, Any]:
    """The source that has these columns of a table, by their names, or by their indices if it has no header.

    Guesses the separator and the header. Raises UserError if a column is missing.
    """
    found = sniff(path, given=columns)
    return _described(found.splits["train"]) | {
        role: _need(path, found.columns, name) for role, name in columns.items()
    }


def _described(table: Table) -> dict[str, Any]:
    return {
        "kind": "table",
        "path": absolute(table.path),
        "header": table.header,
        **table.model_dump(mode="json", exclude_defaults=True, exclude={"path", "text", "header"}),
    }


def _find(columns: Sequence[Column], name: str) -> Column | None:
    """The column of this name or number, or the name itself if a dot in it reaches into a column."""
    known = {str(column): column for column in columns}
    return known.get(name, name if name.split(".", maxsplit=1)[0] in known else None)


def _need(path: Place, columns: Sequence[Column], name: str) -> Column:
    """The column of this name. Raises UserError if there is none."""
    if (column := _find(columns, name)) is None:
        raise UserError(f"{path}:1: expected a column {name!r}, got none{nearest(name, map(str, columns))}")
    return column


# --- the columns ------------------------------------------------------------------------------------------------------


def _one(path: Place, columns: Sequence[Column], what: str, none: str, several: str) -> Column:
    """The only one of these columns. Raises UserError if there is none, or more than one."""
    if len(columns) != 1:
        got = (
            f"one column of {what}, got {', '.join(map(str, columns))}"
            if columns
            else f"a column of {what}, got {none}"
        )
        raise UserError(f"{path}: expected {got}; give {several if columns else several.partition(',')[0]}")
    return columns[0]


def _text(path: Place, columns: Columns) -> tuple[Column, str]:
    """The column of texts, and why."""
    words = {name: _words(cells) for name, cells in columns.items() if str(name) not in LABEL_NAMES}
    named = [name for wanted in TEXT_NAMES for name in words if str(name).lower() == wanted and words[name]]
    if len(named) == 1:
        return named[0], f"by its name, {words[named[0]]:.0f} words a row"
    longest = max(words.values(), default=0.0)
    long = [name for name, n in words.items() if n and n >= longest / 2]
    several = "--text NAME, and --text-pair NAME if two texts have one label together"
    return _one(path, long, "texts", "only numbers", several), f"the longest texts, {longest:.0f} words a row"


def _label(path: Place, columns: Columns) -> tuple[Column, str]:
    """The column of labels, and why."""
    kinds = {name: len(set(map(written, cells))) for name, cells in columns.items()}
    named = [name for name in kinds if str(name).lower() in LABEL_NAMES]
    n_rows = max(map(len, columns.values()), default=0)
    repeated = [name for name, n in kinds.items() if 2 <= n <= min(MOST_LABELS, max(2, n_rows // 5))]
    candidates = named if len(named) == 1 else [name for name in repeated if name in named] or named or repeated
    if not candidates and len(measures := [name for name, cells in columns.items() if _is_measure(cells)]) == 1:
        return measures[0], "the only column of decimal numbers"
    label = _one(path, candidates, "labels", "none whose values repeat", "--label NAME")
    return label, f"{'by its name' if named else 'its values repeat'}, {kinds[label]} values in {n_rows:,} rows"


def _is_measure(cells: Sequence[object]) -> bool:
    """Returns True if the cells are numbers, not all of them whole. An index has whole numbers only."""
    numbers = [number_of(written(cell)) for cell in cells]
    return None not in numbers and any(number is not None and not number.is_integer() for number in numbers)


def _words(cells: Sequence[object]) -> float:
    """The mean number of words a row; 0 for numbers and other cells that are not text."""
    texts = [cell for cell in cells if isinstance(cell, str) and number_of(cell) is None]
    return sum(len(text.split()) for text in texts) / len(cells) if 2 * len(texts) > len(cells) else 0.0


def _problem(cells: Sequence[object]) -> tuple[ProblemType, str]:
    """What the labels are, and why."""
    if any(isinstance(cell, list) for cell in cells):
        return "multi_label_classification", "a row has a list of labels"
    names = {written(cell) for cell in cells} - {""}
    numbers = [number_of(name) for name in names]
    if len(names) > MOST_LABELS // 5 and None not in numbers:
        return "regression", f"{len(names)} different numbers"
    return "single_label_classification", f"{len(names)} labels"


Texts: TypeAlias = str | tuple[str, ...]
"""A text, or two."""


@dataclass(frozen=True)
class InputColumns:
    """Where the texts of an input are in a table."""

    text: str | None = None
    """The column that the user names; its index if the table has no header."""
    text_pair: str | None = None
    names: tuple[str, ...] = ("text",)
    """The names of the texts of an input, which are looked for unless the user names columns."""
    needs_all: bool = False
    """Whether every input has all of them."""
    trained: Mapping[str, Any] = field(default_factory=dict)
    """The `data` of the recipe that the model was trained by. A table with its columns is read in the same way."""

    @property
    def given(self) -> list[str]:
        """The columns that the user names."""
        return [name for name in (self.text, self.text_pair) if name is not None]

    @property
    def usual(self) -> list[str]:
        """The columns that are looked for: those that the recipe names, else the names of the texts."""
        given = [(name, self.trained.get(name)) for name in self.names]
        return [column if isinstance(column, str) else name for name, column in given]


def read_inputs(path: Place, columns: InputColumns) -> Iterator[Texts]:
    """Yields the inputs in a file: its lines, or the texts in the columns of a table.

    Raises UserError, which names the file and the line, for a missing column and a cell that is no text.
    """
    if is_table(path.name):
        table, wanted = _found(path, columns)
        return (row if len(row) > 1 else row[0] for row in read_rows(table, wanted))
    if columns.given:
        raise UserError(f"{path}: expected a table with columns, such as .csv or .jsonl, got lines; leave out --text")
    return read_lines(path)


def _found(path: Place, columns: InputColumns) -> tuple[Table, list[Column]]:
    """The table as it is written, and the columns to read: the first that are there. Raises UserError if none are."""
    for table, choices in _ways(path, columns):
        there = column_names(table)
        for wanted in choices:
            if all(isinstance(column, int) or _find(there, column) is not None for column in wanted):
                return table, wanted
    there, usual = column_names(Table(path=path, text=0, header=True)), columns.usual
    for name in columns.given:
        _need(path, there, name)
    if columns.needs_all and _find(there, usual[0]) is not None:
        _need(path, there, usual[1])
    raise UserError(
        f"{path}:1: expected a column {usual[0]!r}, got {', '.join(map(str, there[:12]))}; give --text NAME,"
        " or --text 0 for the first of a table without a header"
    )


def _ways(path: Place, columns: InputColumns) -> Iterator[tuple[Table, list[list[Column]]]]:
    """The ways in which a table may be written, the likeliest first, each with the columns to look for.

    These are the user's, else those of the training data if they have names, else the usual ones; last, the numbers of
    the training data's columns.
    """
    plain, is_delimited = Table(path=path, text=0), format_of(path.name) in ("csv", "tsv")
    same: list[Column] = [] if columns.given else _trained(columns)
    has_names = any(isinstance(column, str) for column in same)
    delimiter = columns.trained["train"].get("delimiter") if same and is_delimited else None
    trained = plain.model_copy(update={"header": has_names, "delimiter": delimiter})
    if columns.text is not None and columns.text.isdigit():
        yield plain, [[int(name) if name.isdigit() else name for name in columns.given]]
    if has_names:
        yield trained, [same]
    second = columns.text_pair or next(iter(columns.usual[1:]), None)
    is_alone = second is None or (columns.text_pair is None and not columns.needs_all)
    choices: list[list[Column]] = []
    for text in [columns.usual[0], *TEXT_NAMES] if columns.text is None else [columns.text]:
        if second is not None:
            choices.append([text, second])
        if is_alone:
            choices.append([text])
    for separator in (None, *SEPARATORS) if is_delimited else (None,):
        yield plain.model_copy(update={"header": True, "delimiter": separator}), choices
    if same:
        yield trained, [same]


def _trained(columns: InputColumns) -> list[Column]:
    """The columns of the training data, if these are a table."""
    train = columns.trained.get("train")
    if not isinstance(train, Mapping) or train.get("kind") != "table" or train.get("text") is None:
        return []
    others = (columns.trained.get(name) for name in columns.names[1:])
    return [train["text"], *(column for column in others if column is not None)]
