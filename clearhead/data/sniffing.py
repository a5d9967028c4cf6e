"""Finds out how a table is written, and draws a random sample of its rows. No torch."""

import math
import random
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import itemgetter
from typing import Any

from clearhead.data.bad_rows import RowErrors, Undecoded
from clearhead.data.containers import contents_of
from clearhead.data.delimited import delimiter_of, quote_of, records
from clearhead.data.dialects import SEPARATORS, Trial, describe, has_header
from clearhead.data.encodings import find_encoding
from clearhead.data.file_contents import Decision
from clearhead.data.tables import column_names, format_of, number_of, read_cells, table_format
from clearhead.errors import UserError
from clearhead.recipe.data import Column, Table
from clearhead.recipe.places import Place, place

SAMPLE = 10_000
"""Most rows of a sample."""
STRONG = 2
"""How much the columns must speak for a header if the user gives their numbers."""
TABLE_FIELDS = {*Table.model_fields} - {"kind", "path", "source", "target", "text"}
LEAST = 20
"""The fewest rows with cells after the last column."""


@dataclass(frozen=True)
class Sniffed:
    """How a file is written, and a random sample of its rows."""

    table: Table
    """Its complete description."""
    columns: list[Column]
    """Its columns: their names, or their indices if they have none of their own."""
    rows: list[list[object]] = field(default_factory=list)
    """At most SAMPLE rows, drawn at random from all of them in the same way each time, in their order."""
    n_rows: int = 0
    """Number of all rows that can be read."""
    errors: RowErrors = field(default_factory=RowErrors)
    """The rows that cannot be read."""
    decisions: list[Decision] = field(default_factory=list)
    others: dict[str, "Sniffed"] = field(default_factory=dict)
    """The tables of "valid" and "test", if there are some."""

    @property
    def broken(self) -> list[Undecoded]:
        """The rows with bytes of another encoding."""
        return [error for error in self.errors.rows if isinstance(error, Undecoded)]

    def read(self, *, most: int | None = None, **changes: Any) -> "Sniffed":
        """Reads the file with changes of the table, up to so many bad rows."""
        table, errors = self.table.model_copy(update=changes), RowErrors(most=most)
        columns = [*range(len(self.columns))] if _is_delimited(table) else self.columns
        rows, n_rows = draw(cells for _, cells in read_cells(table, columns, errors))
        return replace(self, table=table, rows=rows, n_rows=n_rows, errors=errors)


def sniff(path: Place, *, given: Mapping[str, object] = {}) -> Sniffed:
    """How a table is written, and those of the other splits, in its file or beside it.

    `given` holds what the user set: the table's own fields, such as `delimiter`, and columns by their role, such as
    `text`. Their names or numbers say whether there is a header. Raises UserError if the file is no table.
    """
    contents = None if given.get("format") else contents_of(path)
    if contents is None or contents.kind != "table":
        return _sniff(path, given)
    own = {split: _fields(source) for split, source in contents.sources.items()}
    train = _sniff(place(contents.sources["train"]["path"]), {**own.pop("train"), **given})
    others, decisions = dict[str, Sniffed](), [*contents.decisions, *train.decisions]
    for split, fields in own.items():
        path = place(contents.sources[split]["path"])
        try:
            others[split] = _sniff(path, {**_fields(train.table.model_dump()), **fields, **given})
        except UserError as error:
            decisions = [one for one in decisions if one.what != split]
            decisions.append(Decision("left out", path.name, str(error), f"--{split} FILE"))
    return replace(train, decisions=decisions, others=others)


def _fields(source: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a table that say how it is written."""
    return {name: source[name] for name in source.keys() & TABLE_FIELDS}


def _sniff(path: Place, given: Mapping[str, object]) -> Sniffed:
    """How one file is written."""
    fields = {name: value for name, value in given.items() if name in TABLE_FIELDS and value is not None}
    names = {str(name) for role, name in given.items() if role not in TABLE_FIELDS and name is not None}
    if "format" not in fields and format_of(path.name) is None:
        fields["format"] = "csv"
    table = Table.model_validate({"path": path, "text": 0, **fields})
    fields = {name: getattr(table, name) for name in fields}
    is_found = "encoding" not in fields and (_is_delimited(table) or table_format(table) == "jsonl")
    found = _read(table.model_copy(update={"encoding": find_encoding(path)}) if is_found else table, fields, names)
    if is_found and found.broken and (encoding := find_encoding(path, whole=True)):
        found = _read(table.model_copy(update={"encoding": encoding}), fields, names)
    told = list[Decision]()
    if "encoding" not in fields and (broken := found.broken):
        rows = f"replaced in {len(broken):,} of {found.n_rows + len(found.errors.rows):,} rows"
        told.append(Decision("bytes", rows, str(broken[0]).partition(";")[0], "--data.train.errors strict"))
        found = _read(found.table.model_copy(update={"errors": "replace"}), fields, names)
    if errors := found.errors.rows:
        how = " (MORE THAN HALF)" if len(errors) > found.n_rows else ""
        n_bad = f"{len(errors):,} of {found.n_rows + len(errors):,}{how}"
        told.append(Decision("bad rows", n_bad, str(errors[0]), "--skip-bad"))
    return replace(found, decisions=[*_decisions(found.table, fields), *told])


def _is_delimited(table: Table) -> bool:
    return table_format(table) in ("csv", "tsv")


def _read(table: Table, fields: Mapping[str, object], names: set[str]) -> Sniffed:
    """The rows of a table in the form that fits all of them best."""
    if not _is_delimited(table):
        return Sniffed(table, column_names(table)).read()
    table = _described(table, fields, names)
    columns = column_names(table)
    columns = [i if str(i) in names - {*map(str, columns)} else column for i, column in enumerate(columns)]
    found = Sniffed(table, columns).read()
    errors = found.errors.rows
    quotes = quote_of(table)
    cells = (str(cell) for row in found.rows for cell in row)  # One with a line end and a delimiter may hold a row.
    if "quotes" not in fields and (
        errors or (quotes and any("\n" in one and delimiter_of(table) in one for one in cells))
    ):
        with suppress(UserError):  # The other form gives no row.
            other = found.read(quotes="" if quotes else '"', escape=None, most=len(errors) + 1)
            fits = (len(other.errors.rows), -other.n_rows) < (len(errors), -found.n_rows)
            if fits and (not quotes or Trial(other.table, [[*map(str, row)] for row in other.rows], 0).has_strays):
                found = other
    n_cells = _extra_cells(found) if found.errors.rows and "extra_cells" not in fields else 0
    return found.read(extra_cells=n_cells) if n_cells else found


def _extra_cells(found: Sniffed) -> int:
    """How many cells more than the others some rows have.

    0 unless they are at least LEAST without a header and quotes, all have as many, at least two, and they have numbers
    in the columns where the others have them. A delimiter inside a text seldom stands there twice.
    """
    if found.table.header or quote_of(found.table):
        return 0
    width = len(found.columns)
    others = [cells for _, cells in records(found.table, RowErrors()) if len(cells) != width]
    more = {len(cells) - width for cells in others}
    numbers = [i for i in range(width) if all(number_of(str(row[i])) is not None for row in found.rows)]
    fits = numbers and all(number_of(cells[i]) is not None for cells in others for i in numbers if i < len(cells))
    return max(more) if fits and len(others) >= LEAST and len(more) == 1 and max(more) > 1 else 0


def draw(rows: Iterable[list[object]], *, most: int = SAMPLE) -> tuple[list[list[object]], int]:
    """A random sample of the rows in their order, the same each time, and the number of all rows (Li 1994, L)."""
    rng, numbered = random.Random(0), enumerate(rows)
    kept = [*islice(numbered, most)]
    at, weight = len(kept) - 1, 1.0
    while len(kept) == most:
        weight *= math.exp(math.log(1 - rng.random()) / most)
        wanted = at + 1 + math.floor(math.log(1 - rng.random()) / math.log1p(-weight))
        last = deque(islice(numbered, wanted - at), maxlen=1)
        at = last[0][0] if last else at
        if at < wanted:
            break
        kept[rng.randrange(most)] = last[0]
    return [row for _, row in sorted(kept, key=itemgetter(0))], at + 1


def _described(table: Table, fields: Mapping[str, object], names: set[str]) -> Table:
    """The table as its first rows show it. Names of columns, or their numbers, say whether there is a header."""
    table, rows = describe(table, fields, one_column=bool(names))
    if "header" in fields:
        return table
    first = {cell.strip() for cell in rows[0]} if rows else set[str]()
    least = STRONG if names and all(name.isdecimal() for name in names) else 0
    is_named = bool(names) and not least and names <= first
    is_header = bool(rows) and (table.row_names or is_named or has_header(rows, least=least))
    return table.model_copy(update={"header": is_header})


def _decisions(table: Table, fields: Mapping[str, object]) -> list[Decision]:
    """What was found out about the form of the file, except what is usual."""
    fit, n = "rows then have as many columns", table.skip_lines
    separator = SEPARATORS.get(table.delimiter or "", repr(table.delimiter))
    quotes = (quote_of(table) or "none") + (f", with {table.escape} before one inside a cell" if table.escape else "")
    found = [
        ("encoding", "encoding", table.encoding, table.encoding, "the file is not UTF-8"),
        ("columns", "delimiter", table.delimiter, f"{separator} between them", fit),
        ("quotes", "quotes", table.escape or table.quotes is not None, quotes, fit),
        (
            "left out",
            "skip_lines",
            n,
            f"{n} lines before the table" if n > 1 else "the line before the table",
            "no row",
        ),
        (
            "left out",
            "extra_cells",
            table.extra_cells,
            f"{table.extra_cells} cells after the last column",
            "in some rows",
        ),
        ("header", "header", not table.header, "none; columns have numbers from 0", "the first row holds no names"),
    ]
    shown = found if _is_delimited(table) else found[:1]
    return [
        Decision(what, str(value), why, f"--data.train.{name}")
        for what, name, is_found, value, why in shown
        if is_found and name not in fields
    ]
