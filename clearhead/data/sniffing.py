"""Finds out how a table is written: its separator, its header, and a random sample of its rows. Imports no torch."""

import csv
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from clearhead.data.bad_rows import RowErrors
from clearhead.data.files import read_lines
from clearhead.data.tables import column_names, number_of, read_cells, table_format
from clearhead.errors import UserError
from clearhead.recipe.data import Column, Table
from clearhead.recipe.places import Place

LINES = 1000
"""First lines of a file that show its separator."""
SAMPLE = 10_000
"""Most rows of a sample."""
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
TABLE_FIELDS = ("format", "header", "delimiter")


@dataclass(frozen=True)
class Decision:
    """One choice about the data, as the table of decisions shows it."""

    what: str
    """What is decided, such as "encoding", "text", "label" or "left out"."""
    value: str
    why: str
    option: str
    """The option that changes it, such as `--text NAME`."""
    example: str = ""


@dataclass(frozen=True)
class Sniffed:
    """How a file is written, and a random sample of its rows."""

    splits: dict[str, Table]
    """A complete description of "train", and of "valid" and "test" if the file holds them."""
    columns: list[Column]
    rows: list[list[object]]
    """At most SAMPLE rows of train, drawn at random from all of them in the same way each time, in their order."""
    n_rows: int
    """Number of all rows of train."""
    decisions: list[Decision]


def sniff(path: Place, *, given: Mapping[str, object] = {}) -> Sniffed:
    """How a table is written.

    `given` holds what the user set: the table's own fields, such as `delimiter`, and columns by their role, such as
    `text`. Their names or numbers say whether there is a header. Raises UserError if the file is no table.
    """
    fields = {name: given[name] for name in TABLE_FIELDS if given.get(name) is not None}
    names = [str(name) for role, name in given.items() if role not in TABLE_FIELDS and name is not None]
    table = Table.model_validate({"path": path, "text": 0, **fields})
    decisions: list[Decision] = []
    if table_format(table) not in ("jsonl", "parquet"):
        table, decisions = _written(table, names, is_given=fields.keys())
    columns = column_names(table)
    rows, n_rows = draw(cells for _, cells in read_cells(table, columns, RowErrors()))
    return Sniffed({"train": table}, columns, rows, n_rows, decisions)


def draw(rows: Iterable[list[object]], *, most: int = SAMPLE) -> tuple[list[list[object]], int]:
    """A random sample of the rows in their order, the same each time, and the number of all rows (Vitter 1985)."""
    rng, kept, n_rows = random.Random(0), dict[int, tuple[int, list[object]]](), 0
    for n_rows, row in enumerate(rows, start=1):
        place = n_rows - 1 if n_rows <= most else rng.randrange(n_rows)
        if place < most:
            kept[place] = (n_rows, row)
    return [row for _, row in sorted(kept.values(), key=lambda numbered: numbered[0])], n_rows


def _written(table: Table, columns: Sequence[str], *, is_given: Iterable[str]) -> tuple[Table, list[Decision]]:
    """The table as a recipe describes it, and the guesses in that."""
    lines = [line for line in islice(read_lines(table.path), LINES) if line.strip()]
    usual = "\t" if table_format(table) == "tsv" else ","
    separators = [table.delimiter] if table.delimiter else [*SEPARATORS]
    rows = {separator: _rows(lines, separator, usual) for separator in separators}
    fits = {separator: _fit(rows[separator]) for separator in separators}
    separator = max(separators, key=lambda separator: (fits[separator], separator == usual))
    if not fits[separator]:
        expected = ", ".join(SEPARATORS.get(separator, repr(separator)) for separator in separators)
        raise UserError(f"{table.path}:1: expected columns between {expected}, got one; add its labels")
    decisions: list[Decision] = []
    if separator != usual and not table.delimiter:
        value = f"{SEPARATORS[separator]} between them"
        decisions.append(Decision("columns", value, "most rows have as many columns", "--data.train.delimiter"))
    first = rows[separator][0]
    has_header = len(set(first)) == len(first) and all(_is_name(cell) for cell in first)
    if columns:
        has_header = {*columns} <= {*first} or (has_header and not all(name.isdecimal() for name in columns))
    if "header" in is_given:
        has_header = table.header
    elif not has_header:
        value = "none, as the first row holds no names; columns have numbers from 0"
        decisions.append(Decision("header", value, "the first row holds no names", "--data.train.header"))
    changes = {"header": has_header, "delimiter": None if separator == usual else separator}
    return table.model_copy(update=changes), decisions


def _rows(lines: Sequence[str], separator: str, usual: str) -> list[list[str]]:
    """The rows with this separator; none if it leaves a field that is too long for a table. Only CSV quotes fields."""
    if usual == "\t":
        return [line.split(separator) for line in lines]
    try:
        return [*csv.reader([line + "\n" for line in lines], delimiter=separator)]
    except csv.Error:
        return []


def _fit(rows: Sequence[Sequence[str]]) -> float:
    """The share of rows with the most common number of columns; 0 if that is one, or if there are no rows."""
    (width, n), *_ = Counter(map(len, rows)).most_common(1) or [(0, 0)]
    return n / len(rows) if width > 1 else 0.0


def _is_name(cell: str) -> bool:
    """Returns True if a cell may be the name of a column: a few words, no number."""
    return bool(cell.strip()) and len(cell) <= 40 and len(cell.split()) <= 4 and number_of(cell) is None
