"""The inputs of predictions in a file: lines, or columns of a table. Imports no torch."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from clearhead.data.files import nearest, read_lines
from clearhead.data.guessing import SEPARATORS, TEXT_NAMES, is_table
from clearhead.data.tables import column_names, read_rows, table_format
from clearhead.errors import UserError
from clearhead.recipe.data import Column, Table
from clearhead.recipe.places import Place

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
    if columns.text is not None or columns.text_pair is not None:
        raise UserError(f"{path}: expected a table with columns, such as .csv or .jsonl, got lines; leave out --text")
    return read_lines(path)


def _found(path: Place, columns: InputColumns) -> tuple[Table, list[Column]]:
    """The table as it is written, and the columns to read.

    Without names from the user they are those of the training data, else the usual ones; last, the numbers of the
    training data's columns, if those have no names.
    """
    given = [name for name in (columns.text, columns.text_pair) if name is not None]
    same = None if given else _as_trained(path, columns)
    if same is not None and same[0].header:
        return same
    if columns.text is not None and columns.text.isdigit():
        return Table(path=path, text=0), [int(name) if name.isdigit() else name for name in given]
    texts = [columns.text] if columns.text is not None else [columns.usual[0], *TEXT_NAMES]
    for table in _readings(path):
        there = [*map(str, column_names(table))]
        first = next((name for name in texts if _is_there(name, there)), None)
        if first is not None:
            return table, [first, *_second(path, columns, there)]
    if same is not None:
        return same
    there = [*map(str, column_names(next(_readings(path))))]
    if columns.text is not None:
        raise UserError(f"{path}:1: expected a column {columns.text!r}, got none{nearest(columns.text, there)}")
    raise UserError(
        f"{path}:1: expected a column {columns.usual[0]!r}, got {', '.join(there[:12])}; give --text NAME,"
        " or --text 0 for the first of a table without a header"
    )


def _second(path: Place, columns: InputColumns, there: Sequence[str]) -> list[Column]:
    """The column of the second text, if there is one."""
    name = columns.text_pair or next(iter(columns.usual[1:]), None)
    if name is not None and _is_there(name, there):
        return [name]
    if name is None or (columns.text_pair is None and not columns.needs_all):
        return []
    raise UserError(f"{path}:1: expected a column {name!r}, got none{nearest(name, there)}")


def _is_there(name: str, names: Sequence[str]) -> bool:
    """Whether there is a column of this name, or one that a dot in it reaches into."""
    return name in names or name.split(".", maxsplit=1)[0] in names


def _readings(path: Place) -> Iterator[Table]:
    """The ways in which a table with a header may be written, the usual one first."""
    table = Table(path=path, text=0, header=True)
    yield table
    if table_format(table) in ("csv", "tsv"):
        yield from (table.model_copy(update={"delimiter": separator}) for separator in SEPARATORS)


def _as_trained(path: Place, columns: InputColumns) -> tuple[Table, list[Column]] | None:
    """The table as the training data were written, if it can have the same columns."""
    train = columns.trained.get("train")
    if not isinstance(train, Mapping) or train.get("kind") != "table" or train.get("text") is None:
        return None
    names = [name for name in columns.names[1:] if columns.trained.get(name) is not None]
    wanted: list[Column] = [train["text"], *(columns.trained[name] for name in names)]
    has_names = any(isinstance(column, str) for column in wanted)
    table = Table(path=path, text=0, header=has_names)
    if table_format(table) in ("csv", "tsv"):
        table = table.model_copy(update={"delimiter": train.get("delimiter")})
    there = [*map(str, column_names(table))]
    return (table, wanted) if not has_names or all(_is_there(str(name), there) for name in wanted) else None
