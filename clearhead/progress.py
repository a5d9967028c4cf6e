"""Reports the progress of long loops to a watcher, and pauses between their turns. Imports no torch."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import cached_property
from typing import Any, TypeVar

Watch = Callable[[str, int, int], None]
"""Called with the name of a loop, the number of turns done, and the number of all turns."""
T = TypeVar("T")
_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)
_PAUSE: ContextVar[Callable[[], None] | None] = ContextVar("pause", default=None)


def cached(compute: Callable[[Any], T]) -> cached_property[T]:
    """A property that is computed once, by work that may pause.

    Python 3.11 holds one lock of the class meanwhile, so who needs it would wait for a thread that waits for its turn.
    """
    made = cached_property(compute)
    vars(made)["lock"] = nullcontext()
    return made


def tell(text: str) -> None:
    """Prints a message for people on standard error. Standard output is for results."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Loops inside that are `counted` tell `watch` how far they are."""
    token = _WATCH.set(watch)
    try:
        yield
    finally:
        _WATCH.reset(token)


def counted(turns: Iterable[T], what: str, n: int | None = None) -> Iterator[T]:
    """Yields the `n` `turns` (default: their length), and reports each to the watcher."""
    watch = _WATCH.get()
    if watch is None:
        yield from pieces(turns)
        return
    if n is None:
        turns = turns if isinstance(turns, Sequence) else [*turns]
        n = len(turns)
    watch(what, 0, n)
    for done, turn in enumerate(pieces(turns), start=1):
        yield turn
        watch(what, min(done, n), n)


@contextmanager
def pausing(pause: Callable[[], None]) -> Iterator[None]:
    """Loops inside that are `counted` or in `pieces` call `pause` between two turns. It may raise, which ends them."""
    token = _PAUSE.set(pause)
    try:
        yield
    finally:
        _PAUSE.reset(token)


def pieces(turns: Iterable[T]) -> Iterator[T]:
    """Yields `turns`, with a pause after each."""
    pause = _PAUSE.get()
    for turn in turns:
        yield turn
        if pause is not None:
            pause()
