"""How the steps of a text were computed: by which fast paths, and what kept others from applying."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from typing import TypeVar

from clearhead.brief import brief

T = TypeVar("T")


@dataclass
class Paths:
    """How the steps of a text were computed. A step may be packed, recorded and screened at once."""

    __repr__ = brief

    steps: int = 0
    packed: int = 0
    recorded: int = 0
    screened: int = 0
    guessed: int = 0
    """Tokens of a draft that a step read beside the text's own."""
    changes: int = 0
    """How often the network changed between two steps, so that fast paths began anew."""
    obstacle: str | None = None
    """What keeps the network's code from being skipped, such as a hook."""

    def __str__(self) -> str:
        """`48 steps: 45 recorded, 33 packed; 1 change of the network; not by fast paths: a hook of decoder`."""
        names = "recorded", "packed", "screened"
        counts = [f"{n} {name}" for name in names if (n := getattr(self, name))] or ["all plain"]
        counts += [f"{self.guessed} guesses"] if self.guessed else []
        text = f"{self.steps} steps: {', '.join(counts)}"
        text += f"; {self.changes} changes of the network" if self.changes else ""
        return text + (f"; kept from fast paths by {self.obstacle}" if self.obstacle else "")


class Following(Iterator[T]):
    """An iterator over generated events that also says by which paths they were computed."""

    def __init__(self, written: Generator[T, None, None], paths: Paths) -> None:
        self._written, self.paths = written, paths
        """`paths`: how the steps so far were computed, and what kept fast paths from it."""

    def __next__(self) -> T:
        return next(self._written)

    def close(self) -> None:
        """Stops generation."""
        self._written.close()


_noted: ContextVar[list[Paths] | None] = ContextVar("noted", default=None)


def new_paths() -> Paths:
    """Creates the `Paths` of a text and registers it with the enclosing `explaining` block, if there is one."""
    paths = Paths()
    if (noted := _noted.get()) is not None:
        noted.append(paths)
    return paths


@contextmanager
def explaining(tell: Callable[[str], object]) -> Iterator[None]:
    """At the end of the block, reports how all texts generated in it were computed."""
    each: list[Paths] = []
    token = _noted.set(each)
    try:
        yield
    finally:
        _noted.reset(token)
    counts = {
        name: sum(getattr(one, name) for one in each)
        for name in (field.name for field in fields(Paths))
        if name != "obstacle"
    }
    total = Paths(**counts, obstacle=next((one.obstacle for one in each if one.obstacle), None))
    tell(f"note: {total}" if each else "note: no text was written")
