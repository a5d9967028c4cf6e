"""The promises of reliability, and what shows that each is kept: 40 rows of a matrix, and some about surroundings."""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
IN_MATRIX = 40


@dataclass(frozen=True)
class Counted:
    """What a row tried, and how often its promise was broken."""

    tried: int
    broken: int
    said: str
    """What was tried, such as "50 kills, 33 of them inside a write"."""


@dataclass(frozen=True)
class Row:
    """One promise."""

    number: int
    area: str
    promise: str
    tests: Sequence[str]
    """Tests of the suite that show it, as `FILE` or `FILE::NAME` below `tests/`, slow ones included."""
    program: str
    """A function of a module beside this one, `MODULE.NAME`, that counts what takes minutes; or empty."""
    thorough: bool = False
    """Whether property tests draw 500 examples."""
    fast: bool = False
    """Whether slow tests are left out: another command runs them."""

    def function(self) -> Callable[[Path], Counted]:
        """The program; it gets an empty folder."""
        module, _, name = self.program.partition(".")
        return getattr(import_module(f"{__name__}.{module}"), name)


def rows() -> list[Row]:
    """All rows, in the order of their numbers."""
    table = tomllib.loads((HERE / "rows.toml").read_text(encoding="utf-8"))["row"]
    filled: list[dict[str, Any]] = [{"tests": (), "program": "", **one} for one in table]
    return [Row(number=i, **one) for i, one in enumerate(filled, 1)]
