"""The work allowance of an untrusted program. Every step, value and character costs, and an overdraft stops it.

A step costs `STEP`, a value `MEMBER` and a character 1. An operation that can multiply is charged before it runs.
"""

import re
import time
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Sequence, ValuesView
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import Final

STEP: Final = 512
MEMBER: Final = 128
SECONDS: Final = 10.0

_MAX_BITS = 1024
_WIDEST = 10_000
# Functions that can make much of little. They cost the product of their arguments.
MULTIPLIES: Final = frozenset(
    "batch center expandtabs indent join ljust replace rjust slice to_bytes tojson translate wordwrap zfill".split()
)
FORMATS: Final = frozenset(["format", "format_map"])
# A field whose width has five digits or is itself an argument.
_WIDE = re.compile(r"%[-+ #.\d]*(?:\d{5}|\*)|\{[^{}]*:[^{}]*(?:\d{5}|\{)")


class Exhausted(Exception):
    """The program asked for more than its allowance."""


@dataclass
class Meter:
    """The rest of an allowance of work, and its deadline on the clock of the thread."""

    limit: int
    deadline: float

    def __post_init__(self) -> None:
        self._left = self.limit
        # Containers by id. Keeping them prevents reuse of an id, and nothing in a sandbox changes one.
        self._weights: dict[int, tuple[object, int]] = {}

    def spend(self, cost: int) -> None:
        self._left -= cost
        if self._left < 0 or time.thread_time() > self.deadline:
            raise Exhausted("more steps or text than a chat needs")

    def admit(self, value: object) -> None:
        """Charges for a new value's own length. Raises Exhausted if its unfolded weight exceeds the limit."""
        self.spend(size(value))
        if self.weight(value) > self.limit:
            raise Exhausted("a larger value than a chat needs")

    def weight(self, value: object) -> int:
        """The cost of a value's characters and members at every depth, counted at each occurrence."""
        match value:
            case dict():
                members = chain(value, value.values())
            case list() | tuple() | set() | frozenset() | KeysView() | ValuesView() | ItemsView():
                members = iter(value)
            case _:
                return size(value)
        if id(value) not in self._weights:
            self._weights[id(value)] = value, sum(MEMBER + self.weight(member) for member in members)
        return self._weights[id(value)][1]


_METER: ContextVar[Meter] = ContextVar("meter")


@contextmanager
def allowance(work: int) -> Iterator[None]:
    """Templates compiled and rendered inside share `work` and `SECONDS`. They raise Exhausted beyond either."""
    token = _METER.set(Meter(work, time.thread_time() + SECONDS))
    try:
        yield
    finally:
        _METER.reset(token)


def meter() -> Meter:
    """The current allowance."""
    return _METER.get()


def size(value: object) -> int:
    """The number of a value's own members, not counting nested ones."""
    match value:
        case str() | bytes() | range() | list() | tuple() | set() | frozenset() | dict():
            return len(value)
        case KeysView() | ValuesView() | ItemsView():
            return len(value)
        case _:
            return 1


def pay(name: str, values: Sequence[object], *, deep: bool) -> None:
    """Charges for the most that the function `name` may make of `values`, its subject and arguments."""
    account = meter()
    account.spend(STEP)
    if name in MULTIPLIES:
        account.spend(_product(values))
    elif name in FORMATS and values:
        pay_fields(str(values[0]), values[1:])
    else:
        account.spend(sum(map(account.weight if deep else size, values)))


def pay_fields(text: str, values: Iterable[object]) -> None:
    """Charges for text with fields, each of which may show all values."""
    plain = text.replace("{{", "").replace("}}", "").replace("%%", "")
    if _WIDE.search(plain):
        raise Exhausted("a wider field than a chat needs")
    account = meter()
    n_fields = plain.count("%") + plain.count("{")
    account.spend(len(text) + n_fields * (_WIDEST + sum(map(account.weight, values))))


def pay_operator(operator: str, left: object, right: object) -> None:
    """Charges for `left operator right`."""
    account = meter()
    if operator == "%" and isinstance(left, str):
        pay_fields(left, [right])
    elif operator == "*" and not (isinstance(left, int | float) and isinstance(right, int | float)):
        account.spend(_product([left, right]))
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        check_number(1 << min(max(left.bit_length() * right, 0), 2 * _MAX_BITS))
    account.spend(size(left) + size(right))


def check_number(value: object) -> None:
    """Raises Exhausted if an integer has too many digits."""
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise Exhausted("a larger number than a chat needs")


def _product(values: Iterable[object]) -> int:
    account = meter()
    return prod(1 + (abs(value) if isinstance(value, int) else account.weight(value)) for value in values)
