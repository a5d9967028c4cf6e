"""Finds out how delimited text is written: its delimiter, its quotes and its header. Imports no torch."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from clearhead.data.bad_rows import RowErrors
from clearhead.data.delimited import is_tsv, quote_of, records
from clearhead.data.files import CHUNK, opened_text
from clearhead.data.profiles import DATE
from clearhead.data.tables import number_of
from clearhead.errors import UserError, pasted
from clearhead.recipe.data import Table

ROWS = 1000
"""First rows of a file that show how it is written."""
WHOLE = re.compile(r'"([^"]|"")*"')
"""A cell in quotes."""
MOST_ERRORS = 20
"""Wrong quotes after which a description is given up."""
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


@dataclass(frozen=True)
class Trial:
    """The first rows of a table as one description of it reads them."""

    table: Table
    rows: list[list[str]]
    n_errors: int

    @property
    def width(self) -> int:
        """The most common number of cells of a row."""
        return Counter(map(len, self.rows)).most_common(1)[0][0] if self.rows else 0

    @property
    def fit(self) -> float:
        """The share of rows of that width, halved if the first row is no header of them; 0 for a width of 1."""
        if self.width < 2:
            return 0.0
        share = sum(len(row) == self.width for row in self.rows) / (len(self.rows) + self.n_errors)
        return round(share if len(self.rows[0]) in (self.width, self.width - 1) else share / 2, 3)

    @property
    def has_quotes(self) -> bool:
        """True if quotes surround the cells that need them, or all cells of a column."""
        quote, delimiter = self.table.quotes or "", self.table.delimiter or ","
        if not quote or self.n_errors:
            return False
        plain = read(self.table.model_copy(update={"quotes": "", "escape": None}), n_rows=len(self.rows))
        columns = [*zip(*(row for row in plain.rows[1:] if len(row) == self.width), strict=True)]
        if any(all(len(cell) > 1 and cell[0] == cell[-1] == quote for cell in cells) for cells in columns):
            return True
        n_quoted = sum(cell.startswith(quote) for row in plain.rows for cell in row)
        n_needed = sum(not {delimiter, quote, "\n", "\r"}.isdisjoint(cell) for row in self.rows for cell in row)
        return 0 < n_quoted <= 1.1 * n_needed

    @property
    def has_strays(self) -> bool:
        """True if quotes, read as characters, seldom surround a cell, and more of them stand alone than are doubled."""
        cells = [cell for row in self.rows for cell in row if '"' in (cell[:1], cell[-1:])]
        quoted = [cell for cell in cells if WHOLE.fullmatch(cell)]
        n_doubled = sum('""' in cell[1:-1] for cell in quoted)
        return 2 * len(quoted) <= len(self.rows) and n_doubled < len(cells) - len(quoted)


def read(table: Table, *, n_rows: int = ROWS) -> Trial:
    """The first rows as this description reads them."""
    errors = RowErrors(most=MOST_ERRORS)
    rows = [cells for _, cells in islice(records(table, errors), n_rows)]
    return Trial(table, rows, len(errors.rows))


def describe(table: Table, given: Mapping[str, Any], *, one_column: bool = False) -> tuple[Table, list[list[str]]]:
    """The table with the form that fits its first rows best, and these rows. What is `given` stays.

    Raises UserError if no delimiter gives several columns, unless `one_column` is expected.
    """
    head = _first_lines(table)
    separator = re.fullmatch(r"sep=(.)\s*", head[0], re.IGNORECASE) if head else None
    start = 1 if separator else 0
    n_comments = next((i for i, line in enumerate(head[start:]) if not line.startswith("#")), 0)
    usual = "\t" if is_tsv(table) else ","
    delimiters = [given["delimiter"]] if "delimiter" in given else [separator[1]] if separator else [*SEPARATORS]
    if "skip_lines" not in given:
        table = table.model_copy(update={"skip_lines": start + n_comments})
    trials = [_quoted(table, delimiter, "".join(head), given) for delimiter in delimiters]
    best = max(trials, key=lambda trial: (trial.fit, trial.table.delimiter == usual))
    if not best.fit:
        if not one_column:
            expected = ", ".join(SEPARATORS.get(delimiter, repr(delimiter)) for delimiter in delimiters)
            rows = max((trial.rows for trial in trials), key=len)
            name = pasted(rows[0][0].strip()) if rows and has_header(rows) else 0
            more = f"clearhead train lm --data {pasted(str(table.path))} --text {name} to learn from the texts alone"
            raise UserError(f"{table.path}:1: expected columns between {expected}, got one; add its labels, or {more}")
        best = next((trial for trial in trials if trial.table.delimiter == usual), best)
    if n_comments and "skip_lines" not in given:
        commented = read(best.table.model_copy(update={"skip_lines": best.table.skip_lines - 1}))
        best = commented if commented.rows and len(commented.rows[0]) == best.width else best
    table, (first, *rows) = best.table, best.rows
    changes = {
        "delimiter": None if table.delimiter == usual and "delimiter" not in given else table.delimiter,
        "quotes": None if quote_of(table) == quote_of(table.model_copy(update={"quotes": None})) else table.quotes,
        "row_names": len(first) == best.width - 1
        and any(row[-1] for row in rows)
        and len({row[0] for row in rows}) == len(rows),
    }
    return table.model_copy(update={**changes, **given}), best.rows


def _first_lines(table: Table) -> list[str]:
    with opened_text(table.path, table.encoding, newline="") as text:
        return [*islice(iter(lambda: text.readline(CHUNK), ""), ROWS)]


def _quoted(table: Table, delimiter: str, head: str, given: Mapping[str, Any]) -> Trial:
    """The trial of a delimiter with the quotes that fit best. Other quotes than the usual ones need a reason."""
    escapes = {'"': '\\"' in head, "": f"\\{delimiter}" in head}
    usual = quote_of(table)
    forms = [(usual, None), *((quote, None) for quote in ('"', "", "'") if quote != usual)]
    forms += [(quote, "\\") for quote, is_escaped in escapes.items() if is_escaped]
    forms = [
        form
        for form in forms
        if all(given.get(name, value) == value for name, value in zip(("quotes", "escape"), form, strict=True))
    ]
    trials = [
        read(table.model_copy(update={"delimiter": delimiter, "quotes": quote, "escape": escape}))
        for quote, escape in forms
    ]
    first, *others = trials or [read(table.model_copy(update={"delimiter": delimiter, **given}))]
    for trial in others:
        quote = trial.table.quotes
        if trial.fit > first.fit or (quote and not first.table.quotes and trial.fit == first.fit and trial.has_quotes):
            first = trial if (trial.has_quotes if quote else trial.table.escape or trial.has_strays) else first
    return first


# --- the header -----------------------------------------------------------------------------------------------------

NAMES = {"id", "index", "text", "label", "labels", "class", "category", "sentence", "title", "source", "target", "lang"}
"""Names that columns often have."""
YEAR = re.compile(r"(19|20)\d\d")


def has_header(rows: Sequence[Sequence[str]], *, least: int = 0) -> bool:
    """Returns True if the first row has the names of columns: it differs from the rows below.

    The columns must speak for it by more than `least`; if that is 0, names alone suffice.
    """
    first, *others = rows
    votes = sum(
        _vote(cell.strip(), [row[i].strip() for row in others if i < len(row)], first) for i, cell in enumerate(first)
    )
    named = [cell for cell in first if cell.strip()]
    return votes > least or (votes == least == 0 and len({*named}) == len(named) > 0 and all(map(is_name, named)))


def _vote(name: str, cells: Iterable[str], first: Sequence[str]) -> int:
    """How much a column speaks for a header: above 0 if `name` is unlike the cells below it."""
    filled = [cell for cell in cells if cell]
    if not name or not filled:
        return 0
    if name.lower() in NAMES:
        return 3
    n_numbers = sum(number_of(cell) is not None for cell in filled)
    if number_of(name) is not None:
        counts = [str(i) for i in range(len(first))]
        is_count = [*first] == counts or [*first[1:]] in (counts[:-1], counts[1:])
        if is_count and n_numbers < len(filled) / 2:
            return 2
        return 1 if YEAR.fullmatch(name) and not any(map(YEAR.fullmatch, filled)) else -1
    if n_numbers > 0.9 * len(filled):
        return 2
    if name in filled:
        return -2
    if all(map(DATE.fullmatch, filled)) or 10 * len({*filled}) < len(filled):
        return -2 if DATE.fullmatch(name) else 2
    n_words = sum(len(cell.split()) for cell in filled) / len(filled)
    if not is_name(name):
        return -2
    return 1 if n_words > 4 or 2 * len({*filled}) < len(filled) else 0


def is_name(cell: str) -> bool:
    """Returns True if a cell may be the name of a column: a few words, no number."""
    return bool(cell.strip()) and len(cell) <= 40 and len(cell.split()) <= 4 and number_of(cell) is None
