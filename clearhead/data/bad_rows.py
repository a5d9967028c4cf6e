"""Rows that cannot be used: all of them are told at once, or they are left out. Imports no torch."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from clearhead.errors import UserError

SHOWN = 20
"""Most bad rows that a message lists."""
T = TypeVar("T")


class BadRow(UserError):
    """A row that cannot be used. The message begins with its place, such as `reviews.csv:17`."""


class Undecoded(BadRow):
    """A row with bytes that are not in the encoding of its file."""


class BadRows(UserError):
    """All bad rows of a source, with a line for each of the first SHOWN."""

    def __init__(self, rows: Sequence[BadRow]) -> None:
        super().__init__(str(rows[0]))
        self.rows = rows
        """Every bad row, in order."""
        if len(rows) > 1:
            more = f"and {len(rows) - SHOWN:,} more" if len(rows) > SHOWN else f"{len(rows)} bad rows"
            self.args = ("\n".join([*map(str, rows[:SHOWN]), f"{more}; --skip-bad leaves them out"]),)


@dataclass
class RowErrors:
    """Collects the bad rows of a source while it is read."""

    skip: bool = False
    """Leave them out."""
    rows: list[BadRow] = field(default_factory=list)
    most: int | None = None
    """Bad rows after which reading stops."""

    def check(self, *, has_good: bool) -> None:
        """Raises BadRows if there are bad rows, unless they are left out; raises the first if no row is good."""
        if self.rows and not has_good:
            raise self.rows[0]
        if self.rows and not self.skip:
            raise BadRows(self.rows)


def read_each(
    rows: Callable[[RowErrors], Iterator[tuple[str, list[object]]]],
    make: Callable[[str, list[object]], T],
    *,
    skip: bool,
) -> Iterator[T]:
    """Yields what `make` makes of the place and the cells of each row.

    `rows` reads them, and adds those it cannot read to the errors. Raises BadRows at the end if there are bad rows,
    which with `skip` are left out.
    """
    errors, has_good = RowErrors(skip), False
    for where, cells in rows(errors):
        try:
            example = make(where, cells)
        except BadRow as error:
            errors.rows.append(error)
        else:
            yield example
            has_good = True
    errors.check(has_good=has_good)
