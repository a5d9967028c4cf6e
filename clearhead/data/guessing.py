"""Guesses what a table is for, and reads the inputs in a file in the same way. Imports no torch."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, TypeAlias

from clearhead.brief import amount
from clearhead.data.files import nearest, read_lines
from clearhead.data.roles import Roles, choose
from clearhead.data.sniffing import Decision, Sniffed, sniff
from clearhead.data.tables import column_names, format_of, read_rows
from clearhead.errors import UserError
from clearhead.recipe.data import Column, Table
from clearhead.recipe.places import Place, absolute

TEXT_NAMES = ("text", "body", "sentence", "content", "review", "comment", "message", "description", "document")
COLUMNS = ("text", "text_pair", "label", "source", "target")
"""The roles of columns that options name."""
FORM = ("format", "encoding", "delimiter", "quotes", "escape", "skip_lines", "row_names")
"""The fields of a table that say how it is written."""
NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Guess:
    """What a recipe needs to learn from data, and each choice in that."""

    recipe: str
    data: dict[str, Any]
    """Its table of this name."""
    decisions: list[Decision]


def is_table(name: str) -> bool:
    """Returns True if a name is that of a table file."""
    return format_of(name) is not None


def guess(path: Place, *, given: Mapping[str, Any] = NOTHING) -> Guess:
    """The recipe for a table, and its `data`.

    `given` is what the user set in `data`, which is not guessed: columns by their names, or by their indices if there
    is no header; `problem_type`; sources; and fields of the table in `train`. Raises UserError if a column is missing,
    or if several columns may be meant.
    """
    names = {role: given[role] for role in COLUMNS if given.get(role) is not None}
    if ("source" in names) != ("target" in names):
        raise UserError(f"{path}: expected --source NAME and --target NAME, got one of them; give both")
    if isinstance(label := names.get("label"), str) and "," in label:
        names["label"] = [name.strip() for name in label.split(",")]
    every = [*chain.from_iterable(name if isinstance(name, list) else [name] for name in names.values())]
    found = sniff(path, given={**{f"{i}": name for i, name in enumerate(every)}, **given.get("train", {})})
    n_bad = len(errors := found.errors.rows)
    if n_bad > found.n_rows and not given.get("skip_bad"):
        raise UserError(
            f"{errors[0]}; so are {n_bad:,} of {n_bad + found.n_rows:,} rows; try --data.train.format label_text"
            f" --data.train.delimiter '{found.table.delimiter or ','}' --data.train.skip_lines {+found.table.header}"
        )
    need = partial(_need, path, found.columns)
    chosen = {
        role: [need(f"{one}") for one in name] if isinstance(name, list) else need(f"{name}")
        for role, name in names.items()
    }
    if problem := given.get("problem_type"):
        chosen["problem_type"] = problem
    try:
        roles = choose(path, found.columns, found.rows, given=chosen)
    except UserError as error:
        bad = f"; also --skip-bad: {amount(n_bad, 'rows are bad')}" if n_bad else ""
        raise UserError(f"{error}{bad}") from None
    tables, told = {"train": found.table}, found.decisions
    for split, other in found.others.items():
        if lacks := _lack(other, found, roles):
            told = [one for one in told if one.what != split]
            told.append(Decision("left out", other.table.path.name, lacks, f"--{split} FILE"))
        elif not given.get(split):
            tables[split] = other.table
    sources = {split: _described(table) | roles.source for split, table in tables.items()}
    return Guess(roles.recipe, {**sources, **roles.data}, [*roles.decisions, *told])


def table_of(path: Place, columns: Mapping[str, str], *, given: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
    """The source that has these columns of a table, by their names, or by their indices if it has no header.

    Guesses how it is written, apart from the fields that are given. Raises UserError if a column is missing.
    """
    found = sniff(path, given={**given, **columns})
    return _described(found.table) | {role: _need(path, found.columns, name) for role, name in columns.items()}


def _lack(other: Sniffed, train: Sniffed, roles: Roles) -> str:
    """What another table lacks of the columns and labels of training; an empty text if nothing."""
    label = roles.data.get("label")
    columns = [*roles.source.values(), roles.data.get("text_pair"), *(label if isinstance(label, list) else [label])]
    for column in columns:
        if column is not None and _find(other.columns, str(column)) is None:
            return f"no column {column!r}"
    if roles.data.get("problem_type") != "single_label_classification" or label not in train.columns:
        return ""
    mine, its = ({str(row[one.columns.index(label)]) for row in one.rows} for one in (train, other))
    return f"labels that training does not have, such as {min(its - mine)}" if its - mine else ""


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
    train = columns.trained.get("train") if _trained(columns) else None
    is_like_train = bool(train) and PurePath(train.get("path", "")).suffix == PurePath(path.name).suffix
    is_told = is_table(path.name) or bool(columns.given)
    if (is_told or is_like_train) and (found := _found(path, columns, train if is_like_train else None)):
        return (row if len(row) > 1 else row[0] for row in read_rows(*found))
    if is_table(path.name):
        raise _lacking(path, columns)
    if columns.given:
        raise UserError(
            f"{path}: expected a table with columns {', '.join(columns.given)}, got lines; leave out --text"
        )
    return read_lines(path)


def _found(path: Place, columns: InputColumns, train: Mapping[str, Any] | None) -> tuple[Table, list[Column]] | None:
    """The table as it is written, like that of training if it is given, and the columns to read, if they are there."""
    form = {name: value for name, value in (train or {}).items() if name in FORM}
    for fields in (form, NOTHING) if form else (NOTHING,):
        plain = sniff(path, given={**fields, "text": columns.text or "text"}).table
        for is_named, wanted in _choices(columns):
            table = plain.model_copy(update={"header": is_named})
            there = column_names(table)
            if all(column in there or _find(there, str(column)) is not None for column in wanted):
                return table, wanted
    return None


def _lacking(path: Place, columns: InputColumns) -> UserError:
    """The error of a table without the columns of the inputs."""
    table = sniff(path, given={"text": columns.text or "text"}).table
    there, usual = column_names(table.model_copy(update={"header": True})), columns.usual
    for name in [*columns.given, *(usual[1:] if columns.needs_all and _find(there, usual[0]) is not None else ())]:
        _need(path, there, name)
    return UserError(
        f"{path}:1: expected a column {usual[0]!r}, got {', '.join(map(str, there[:12]))}; give --text NAME,"
        " or --text 0 for the first of a table without a header"
    )


def _choices(columns: InputColumns) -> Iterator[tuple[bool, list[Column]]]:
    """The columns that may hold the inputs, the likeliest first, and whether a header names them.

    These are the user's, else those of the training data if they have names, else the usual ones; last, the numbers of
    the training data's columns.
    """
    same: list[Column] = [] if columns.given else _trained(columns)
    has_names = any(isinstance(column, str) for column in same)
    if columns.text is not None and columns.text.isdigit():
        yield False, [int(name) if name.isdigit() else name for name in columns.given]
    if has_names:
        yield True, same
    second = columns.text_pair or next(iter(columns.usual[1:]), None)
    is_alone = second is None or (columns.text_pair is None and not columns.needs_all)
    for text in [columns.usual[0], *TEXT_NAMES] if columns.text is None else [columns.text]:
        if second is not None:
            yield True, [text, second]
        if is_alone:
            yield True, [text]
    if same:
        yield has_names, same


def _trained(columns: InputColumns) -> list[Column]:
    """The columns of the training data, if these are a table."""
    train = columns.trained.get("train")
    if not isinstance(train, Mapping) or train.get("kind") != "table" or train.get("text") is None:
        return []
    others = (columns.trained.get(name) for name in columns.names[1:])
    return [train["text"], *(column for column in others if column is not None)]
