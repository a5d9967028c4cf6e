"""Short texts: brief() for the content of an object, with shapes in place of numbers; names, numbers and bounds."""

import re
import reprlib
from collections.abc import Collection, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Shaped(Protocol):
    """A tensor or an array of any library, without importing it."""

    dtype: Any
    shape: Any


WIDTH = 240
"""Characters of names that are listed in a line."""


def brief(value: object) -> str:
    """`Tokens(ids=int64 of 2 x 5, valid=None, …)`: a bounded repr for objects with tensors, as `__repr__ = brief`."""
    return _BRIEF.repr1(value, _BRIEF.maxlevel)


def shape_of(value: object) -> str:
    """`float32 of 2 x 5` for a tensor or an array; the name of the type for anything else."""
    if not isinstance(value, Shaped):
        return type(value).__name__
    kind = str(value.dtype).removeprefix("torch.")
    return f"{kind} of {' x '.join(map(str, value.shape))}" if len(value.shape) else kind


class _Brief(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxtuple, self.maxlist, self.maxdict = 3, 12, 4, 4
        self.maxstring, self.maxother = 60, 60

    def repr1(self, x: Any, level: int) -> str:
        if isinstance(x, Shaped):
            return shape_of(x)
        if not is_dataclass(x) or isinstance(x, type):
            return super().repr1(x, level)
        name = type(x).__qualname__
        if level <= 0:
            return f"{name}(...)"
        inside = (f"{f.name}={self.repr1(getattr(x, f.name), level - 1)}" for f in fields(x) if f.repr)
        return f"{name}({', '.join(inside)})"


_BRIEF = _Brief()


def cut(text: str, most: int) -> str:
    """The text, or its beginning with an ellipsis, in at most this many characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def shorten(names: Collection[str], most: int = 6) -> str:
    """The first names that fit into a line, and how many more there are: `a, b and 71 more`."""
    some = [cut(name, WIDTH // 2) for name in [*names][:most]]
    while len(some) > 1 and len(", ".join(some)) > WIDTH:
        some.pop()
    rest = len(names) - len(some)
    return ", ".join(some) + (f" and {rest:,} more" if rest else "")


def amount(n: int, what: str) -> str:
    """A number of what is named in the plural: `2 rows are bad`, but `1 row is bad`."""
    one = re.sub(r"\bare\b", "is", re.sub(r"^(\w+)s\b", r"\1", what), count=1)
    return f"{n:,} {one if n == 1 else what}"


def between(bounds: Sequence[float], form: str = ".4f") -> str:
    """The bounds of an interval."""
    return " to ".join(format(bound, form) for bound in bounds)
