"""Reads the rows of delimited text, such as CSV and TSV. Imports no torch."""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, tee
from typing import Any, TextIO, TypeAlias

from clearhead.brief import amount
from clearhead.data.archives import plain_name
from clearhead.data.bad_rows import BadRow, RowErrors, Undecoded
from clearhead.data.blocks import is_large, read_blocks
from clearhead.data.files import LONGEST_LINE, nearest, opened_text, undecoded
from clearhead.errors import UserError
from clearhead.recipe.data import Column, Table
from clearhead.recipe.places import Place

LONGEST_CELL = 1 << 24
"""Most characters of a quoted cell. A quote that is never closed is found after so many."""
DECIMAL = re.compile(r"\A([+-]?\d+),(\d+)\Z")
"""A number as it stands between semicolons, where a comma is its point."""
Record: TypeAlias = tuple[int, list[str]]
"""The line where a row begins, and its cells."""


def read_delimited(table: Table, columns: Sequence[Column], errors: RowErrors) -> Iterator[tuple[str, list[object]]]:
    """Yields the place and the cells in the given columns of each row. Adds rows that cannot be read to `errors`."""
    first = next(records(table, RowErrors()), None)
    if first is None:
        return
    width = len(first[1]) + table.row_names
    at = [_index(table.path, column, first[1] if table.header else None) + table.row_names for column in columns]
    check = partial(_checked, table, at, width, errors)
    if width == 1 or not _is_usual(table) or not at or max(at) >= width or not is_large(table.path):
        yield from check(islice(records(table, errors), int(table.header), None))
        return
    n_skipped, place = int(table.header), f"{table.path}:"
    form = {"is_quoted": bool(quote_of(table)), "skip_lines": table.skip_lines}
    for block in read_blocks(table.path, delimiter_of(table), **form):
        if isinstance(block, int):
            rest = records(table.model_copy(update={"skip_lines": block - 1}), errors)
            yield from check(islice(rest, n_skipped, None))
        elif cells := block.columns(at, width):
            places = map(place.__add__, map(str, block.lines[n_skipped:].tolist()))
            rows = zip(*(column[n_skipped:] for column in cells), strict=True)
            yield from zip(places, map(list, rows), strict=True)
        else:
            text = block.content.decode("utf-8", "replace" if table.errors == "replace" else "surrogateescape")
            lines = io.StringIO(text, newline="" if quote_of(table) else "\n")
            yield from check(islice(parse(table, lines, block.line, errors), n_skipped, None))
        n_skipped = 0


def _is_usual(table: Table) -> bool:
    """Returns True for UTF-8 with double quotes, or none, that are doubled inside a cell, and no decimal commas."""
    is_plain = quote_of(table) != "'" and not table.escape and delimiter_of(table) != ";"
    return (table.encoding or "utf-8").lower() in ("utf-8", "utf8") and is_plain


def _checked(
    table: Table, at: Sequence[int], width: int, errors: RowErrors, rows: Iterable[Record]
) -> Iterator[tuple[str, list[object]]]:
    """The cells at these indices of each row that has them."""
    least, usual = max(at, default=0) + 1, (width, width + table.extra_cells)
    has_commas = delimiter_of(table) == ";"
    for line, cells in rows:
        if errors.most and len(errors.rows) >= errors.most:
            return
        where = f"{table.path}:{line}"
        if (len(cells) not in usual or width < least) and (
            problem := _misfit(cells, width, least, quoted=bool(quote_of(table)))
        ):
            errors.rows.append(BadRow(f"{where}: {problem}"))
            continue
        kept: list[object] = [DECIMAL.sub(r"\1.\2", cells[i]) if has_commas else cells[i] for i in at]
        if byte := next(filter(None, (undecoded(cells[i]) for i in at)), None):
            expected = "UTF-8" if table.encoding is None else table.encoding
            remedy = "try --data.train.encoding cp1252, or the file's true encoding"
            errors.rows.append(Undecoded(f"{where}: expected {expected}, got the byte {byte}; {remedy}"))
            continue
        yield where, kept


def _misfit(cells: Sequence[str], width: int, least: int, *, quoted: bool) -> str:
    """The mistake in the number of cells of a row; an empty text if there is none. Empty cells may follow the last."""
    if len(cells) > width and any(cells[width:]):
        remedy = "quote the text that has the delimiter" if quoted else "take the delimiter out of the text"
        return f"expected {amount(width, 'columns')} as in the first line, got {len(cells)}; {remedy}"
    if len(cells) < least:
        remedy = "try another delimiter" if len(cells) == 1 else "try another column, or mend the line"
        return f"expected at least {least} columns, got {len(cells)}; {remedy}"
    return ""


def quote_of(table: Table) -> str:
    """What surrounds the cells that hold the delimiter; an empty text for nothing."""
    if table.quotes is not None:
        return table.quotes
    return "" if is_tsv(table) else '"'


def is_tsv(table: Table) -> bool:
    """Returns True for TSV, as stated or by the name."""
    is_named = plain_name(table.path.name).endswith((".tsv", ".tab"))
    return table.format == "tsv" or (table.format is None and is_named)


def delimiter_of(table: Table) -> str:
    """What stands between cells."""
    return table.delimiter or ("\t" if is_tsv(table) else ",")


def records(table: Table, errors: RowErrors) -> Iterator[Record]:
    """Yields the cells of each row, without blank rows. Adds rows whose quotes are wrong to `errors`."""
    newline = "" if quote_of(table) else None
    with opened_text(table.path, table.encoding, newline=newline, errors=table.errors) as text:
        line = 1 + sum(1 for _ in islice(iter(text.readline, ""), table.skip_lines))
        yield from parse(table, text, line, errors)


def parse(table: Table, text: TextIO, line: int, errors: RowErrors) -> Iterator[Record]:
    """Yields the cells of each row of a text that begins at this line of the table's file."""
    quote, lines = quote_of(table), iter(partial(text.readline, LONGEST_LINE + 1), "")
    if quote or table.escape:
        rows = _quoted(table, lines, line, errors, delimiter=delimiter_of(table), quotechar=quote or None)
    else:
        rows = _plain(table.path, lines, line, delimiter_of(table))
    width = 0
    for record in rows:
        cells = record[1]
        is_row = len(cells) > 1 and any(cells)  # Delimiters alone are a blank line.
        is_empty_cell = bool(quote) and cells == [""]  # Quotes with nothing in them; a blank line has no cell.
        is_blank_cell = width == 1 and cells != [""]  # Spaces are the cell of a table of one column.
        if is_row or (len(cells) == 1 and (cells[0].strip() or is_blank_cell)) or is_empty_cell:
            width = width or len(cells)
            yield record


def _plain(path: Place, lines: Iterable[str], line: int, delimiter: str) -> Iterator[Record]:
    for number, text in enumerate(lines, start=line):
        if len(text) > LONGEST_LINE:
            where = f"{path}:{number}"
            raise UserError(f"{where}: expected at most {LONGEST_LINE:,} characters a line, got more; try shorter ones")
        yield number, text.rstrip("\r\n").split(delimiter)


def _quoted(table: Table, lines: Iterator[str], line: int, errors: RowErrors, **form: Any) -> Iterator[Record]:
    """The rows of text with quotes. After a row whose quotes are wrong, reading goes on at its second line."""
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_CELL))
    form |= {"strict": True, "escapechar": table.escape, "doublequote": table.escape is None}
    form |= {} if form["quotechar"] else {"quoting": csv.QUOTE_NONE}
    while True:
        lines, behind = tee(lines)  # What begins with the first line of the row.
        reader, n_read = csv.reader(lines, **form), 0
        try:
            for cells in reader:
                yield line + n_read, cells
                for _ in range(reader.line_num - n_read):
                    next(behind)
                n_read = reader.line_num
            return
        except csv.Error as error:
            line += n_read
            remedy = "close or double the quotes" if form["quotechar"] else "mend the line"
            errors.rows.append(
                BadRow(f"{table.path}:{line}: expected CSV, got {error}; {remedy}, or set data.train.quotes")
            )
            if len(errors.rows) == errors.most:
                return
            next(behind)
            lines, line = behind, line + 1


def _index(path: Place, column: Column, header: list[str] | None) -> int:
    """The index of a column. Raises UserError if there is none."""
    if isinstance(column, int):
        return column
    if header is None:
        if column.isdecimal():
            return int(column)
        raise UserError(f"{path}: expected a column by its index from 0, got {column!r}; try header = true")
    names = [name.strip() for name in header]
    if column not in names:
        raise UserError(f"{path}:1: expected a column {column!r}, got none{nearest(column, names)}")
    return names.index(column)


def names_in(header: Sequence[str]) -> list[Column]:
    """The names of columns; a column whose name is empty or repeated has its index."""
    names = [name.strip() for name in header]
    return [name if name and names.count(name) == 1 else i for i, name in enumerate(names)]
