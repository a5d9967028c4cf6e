"""Reports the progress of long loops to a watcher. Imports no torch."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Watch = Callable[[str, int, int], None]
"""Called with the name of a loop, the number of turns done, and the number of all turns."""
T = TypeVar("T")
_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Loops inside that are `counted` tell `watch` how far they are."""
    token = _WATCH.set(watch)
    try:
        yield
    finally:
        _WATCH.reset(token)


def counted(turns: Iterable[T], what: str, n: int | None = None) -> Iterator[T]:
    """Yields `turns`, of which there are `n` (default: their length), and reports each to the watcher."""
    watch = _WATCH.get()
    if watch is None:
        yield from turns
        return
    if n is None:
        turns = turns if isinstance(turns, Sequence) else [*turns]
        n = len(turns)
    watch(what, 0, n)
    for done, turn in enumerate(turns, start=1):
        yield turn
        watch(what, min(done, n), n)
