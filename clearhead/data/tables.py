"""Reads columns of TSV, CSV, JSON lines and parquet, and what a cell says. Imports no torch."""

import io
import math
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

from clearhead.data.archives import plain_name
from clearhead.data.bad_rows import BadRow, RowErrors, read_each
from clearhead.data.delimited import names_in, read_delimited, records
from clearhead.data.files import Unpacked, check_expansion, nearest, opened
from clearhead.data.layouts import Objects, filled_lines, objects_of
from clearhead.errors import UserError, reason
from clearhead.json_text import parse
from clearhead.recipe.data import Column, Table, TableFormat
from clearhead.recipe.places import Place

if TYPE_CHECKING:
    from pyarrow import parquet

Cells: TypeAlias = Iterator[tuple[str, list[object]]]
"""The cells of each row with its place, such as `reviews.csv:17`."""
PARQUET_ROWS = 1024
"""Read at once."""
FIRST_ROWS, MOST_FIELDS = 1000, 20
"""The rows that show which fields there are. An object of more fields is one cell."""

SUFFIXES: dict[str, TableFormat] = {
    ".tsv": "tsv",
    ".tab": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}


def read_rows(table: Table, columns: Sequence[Column]) -> Iterator[tuple[str, ...]]:
    """Yields the texts in the given columns row by row.

    Raises UserError, which names the line, if a row or column does not fit the table's description.
    """
    yield from read_each(partial(read_cells, table, columns), partial(texts_of, columns), skip=table.skip_bad)


def read_cells(table: Table, columns: Sequence[Column], errors: RowErrors) -> Cells:
    """Yields the cells in the given columns row by row.

    A cell is what the file holds: text in CSV and TSV, anything in JSON lines and parquet. Adds rows that cannot be
    read to `errors`. Raises UserError if there are no rows.
    """
    if (objects := _objects(table, errors)) is not None:
        rows = fields(objects, columns, errors)
    elif table_format(table) == "parquet":
        rows = _parquet_rows(table.path, columns, errors)
    else:
        rows = read_delimited(table, columns, errors)
    if first := next(rows, None):
        yield first
        yield from rows
    elif not errors.rows:
        raise UserError(f"{table.path}: expected rows, got only a header; try another file")


def column_names(table: Table) -> list[Column]:
    """The names of a table's columns; their indices for TSV and CSV without a header.

    Rows of objects have the fields of their first rows; a dot leads into an object in them.
    """
    if (objects := _objects(table, RowErrors())) is not None:
        rows = [row for _, row in islice(objects, FIRST_ROWS)]
        are_lists = any(isinstance(row, list) for row in rows)
        names = dict.fromkeys(name for row in rows for name, _ in cells_in(row))
        return [int(name) if are_lists and name.isdigit() else name for name in names]
    if table_format(table) == "parquet":
        with _parquet_file(table.path) as (file, _):
            return [*file.schema_arrow.names]
    _, first_row = next(records(table, RowErrors()), (1, list[str]()))
    return names_in(first_row) if table.header else [*range(len(first_row))]


def _objects(table: Table, errors: RowErrors) -> Objects | None:
    """The rows of a table as objects with fields; None for delimited text and parquet."""
    rows = _json_objects(table, errors) if table_format(table) == "jsonl" else objects_of(table, errors)
    return _named(rows) if rows and table.header else rows


def _named(rows: Objects) -> Objects:
    """The rows, as objects whose fields the first row names if it is a list."""
    names = list[str]()
    for where, row in rows:
        if not names and isinstance(row, list):
            names = [*map(str, row)]
        else:
            yield where, dict(zip(names, row, strict=False)) if names and isinstance(row, list) else row


def cells_in(row: object, before: str = "") -> Iterator[tuple[str, object]]:
    """The fields of a row with their values, also those inside of its objects; a list has its indices for names."""
    for name, cell in numbered(row).items():
        if isinstance(cell, dict) and 0 < len(cell) <= MOST_FIELDS and before.count(".") < 3:
            yield from cells_in(cell, f"{before}{name}.")
        else:
            yield f"{before}{name}", cell


def table_format(table: Table) -> TableFormat:
    """The format of a table: as stated, or by the file's name."""
    path = table.path
    kind = table.format or format_of(path.name)
    if kind is None:
        raise UserError(f'{path}: expected a name in {", ".join(SUFFIXES)}, got {path.name}; try format = "tsv"')
    return kind


def format_of(name: str) -> TableFormat | None:
    """The format of a table file by its name, also a packed one's; None for any other file."""
    name = plain_name(name)
    return next((kind for suffix, kind in SUFFIXES.items() if name.endswith(suffix)), None)


# --- objects with fields ----------------------------------------------------------------------------------------------


def fields(objects: Iterable[tuple[str, object]], columns: Sequence[Column], errors: RowErrors) -> Cells:
    """The values in these fields of each object; None for a field that other objects have.

    Adds objects to `errors` if the first FIRST_ROWS have no such field.
    """
    objects = iter(objects)
    first = [*islice(objects, FIRST_ROWS)]
    names = [*map(str, columns)]
    unknown = {name for name in names if not any(has_field(row, name) for _, row in first)}
    for where, row in chain(first, objects):
        try:
            there = (name if name in unknown or has_field(row, name) else None for name in names)
            yield where, [None if name is None else cell_at(row, name, where=where) for name in there]
        except BadRow as error:
            errors.rows.append(error)


def roots_of(columns: Iterable[Column], known: Sequence[str], where: object) -> list[str]:
    """The columns of a table that are named, or into which the dot of a name reaches, each once.

    Raises UserError for one that the table does not have.
    """
    names = [*map(str, columns)]
    roots = dict.fromkeys(name if name in known else name.split(".", 1)[0] for name in names)
    for root in roots:
        if root not in known:
            raise UserError(f"{where}: expected a column {root!r}, got none{nearest(root, known)}")
    return [*roots]


def has_field(row: object, name: str) -> bool:
    """Returns True if a nested object has a field of this name, or of names joined by dots."""
    try:
        cell_at(row, name, where="")
    except BadRow:
        return False
    return True


def numbered(row: object) -> dict[str, object]:
    """A row as an object: a list by its indices."""
    if isinstance(row, list):
        return {str(i): cell for i, cell in enumerate(row)}
    return row if isinstance(row, dict) else {}


def cell_at(row: object, name: str, *, where: str) -> object:
    """The value in a field of a nested object. `name` is its name, or names joined by dots."""
    value = numbered(row) if isinstance(row, list) else row
    for part in [name] if isinstance(value, dict) and name in value else name.split("."):
        if not isinstance(value, dict):
            raise BadRow(f"{where}:{name}: expected an object, got {type(value).__name__}")
        if part not in value:
            raise BadRow(f"{where}: expected a field {part!r}, got none{nearest(part, map(str, value))}")
        value = value[part]
    return value


def _json_objects(table: Table, errors: RowErrors) -> Iterator[tuple[str, object]]:
    for where, text in filled_lines(table.path, table, errors):
        try:
            value = parse(text, where, remedy="try one JSON object a line", numbered=False)
        except UserError as error:
            errors.rows.append(BadRow(str(error)))
        else:
            yield where, value


def _parquet_rows(path: Place, columns: Sequence[Column], errors: RowErrors) -> Cells:
    with _parquet_file(path) as (file, content):
        header, size = list(file.schema_arrow.names), content.seek(0, io.SEEK_END)
        names = [header[c] if isinstance(c, int) and c < len(header) else c for c in columns]
        roots = roots_of(names, header, path)
        # A row group's pages are unpacked at once. The library ends the process where a damaged file describes a
        # column, so nothing is asked about columns.
        for i in range(file.metadata.num_row_groups):
            check_expansion(path, file.metadata.row_group(i).total_byte_size, size)

        def rows() -> Iterator[tuple[str, object]]:
            at = n_bytes = 0
            for batch in file.iter_batches(PARQUET_ROWS, columns=roots):
                n_bytes += batch.nbytes
                check_expansion(path, n_bytes, size)
                for row in batch.to_pylist():
                    yield f"{path}:row {at}", row
                    at += 1

        yield from fields(rows(), names, errors)


@contextmanager
def _parquet_file(path: Place) -> Generator[tuple["parquet.ParquetFile", BinaryIO], None, None]:
    """A parquet file that is open to read, and its bytes. Raises UserError if it is none, also while it is read."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise UserError(
            f"{path}: expected pyarrow to read parquet, got no such package; try pip install 'clearhead[data]'"
        ) from None
    with opened(path) as content:
        if isinstance(content, Unpacked):
            raise UserError(f"{path}: expected parquet, got a packed file; try unpacking it first")
        try:
            yield parquet.ParquetFile(content), content
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{path}: expected parquet, got {reason(error)}") from None


# --- cells ------------------------------------------------------------------------------------------------------------


def texts_of(columns: Sequence[Column], where: str, cells: Sequence[object]) -> tuple[str, ...]:
    """The cells of the columns. Raises BadRow if one does not hold text."""
    both = zip(columns, cells, strict=False)
    return tuple([cell if isinstance(cell, str) else text_of(cell, where=f"{where}:{name}") for name, cell in both])


def text_of(cell: object, *, where: str) -> str:
    """A cell that holds text. Raises BadRow, which begins with `where`, if it holds anything else."""
    if not isinstance(cell, str):
        raise BadRow(f"{where}: expected text, got {type(cell).__name__}")
    return cell


MISSING = {"", "nan", "null", "<na>", "#n/a"}
"""What programs write where a label is missing, in lower case."""


def alone(cell: object) -> object:
    """The text in a list of one; any other cell as it is."""
    match cell:
        case [str(text)]:
            return text
        case _:
            return cell


def written(cell: object) -> str:
    """A label as text, also one in a list. Programs write 3 as 3.0 in a column where a number is missing."""
    cell = alone(cell)
    if isinstance(cell, str):
        return cell.strip()
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return "" if cell is None else str(cell).strip()


LISTED = re.compile(r"""\s*(?:'([^']*)'|"([^"]*)"|([^,]+))\s*(?:,|$)""")
"""An item of a list that is written as text, in quotes or without."""


def parts_of(cell: object, separator: str = ",") -> list[str]:
    """The labels in a cell: a list, a list as Python or JSON writes it, or text with separators."""
    if isinstance(cell, list):
        return [written(part) for part in cell]
    text = written(cell)
    if text[:1] + text[-1:] == "[]":
        return ["".join(either).strip() for either in LISTED.findall(text[1:-1])]
    return [part.strip() for part in text.split(separator)]


def items_of(text: str) -> list[str]:
    """The words or tags in a cell: a list as Python or JSON writes it, or text with spaces between them."""
    return parts_of(text) if text.startswith(("['", '["')) else text.split()


def number_of(text: str) -> float | None:
    """The finite number that a text writes, if it does."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in text else None
