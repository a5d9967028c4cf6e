"""`Turns`: one computation at a time, in order of rank. Work in pieces gives way between two of them."""

import bisect
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from clearhead.errors import UserError

QUIET = 0.05
"""Seconds without a question of rank 0 after which others go on: a place asks several, one after the other."""
LOOK = 0.1
"""Seconds after which a waiting thread looks whether its asker has left."""
LEFT: ContextVar[threading.Event | None] = ContextVar("LEFT", default=None)
"""Set once the asker of the question that this thread answers no longer waits."""
_RANK: ContextVar[int] = ContextVar("_RANK", default=0)
"""0: a look, which is short. 1: work in pieces that the reader asked for. 2: a sweep, which waits for both."""


class GivenUp(UserError):
    """The asker has left."""


@contextmanager
def ranking(rank: int) -> Iterator[None]:
    """Turns that this thread takes inside have this rank."""
    token = _RANK.set(rank)
    try:
        yield
    finally:
        _RANK.reset(token)


class Turns:
    """A reentrant lock. Lower ranks come first, and those of one rank in order; work that began ends before the next.

    `with turns:` raises GivenUp if the asker has left.
    """

    def __init__(self) -> None:
        self._free = threading.Condition()
        self._owner: int | None = None
        self._turn = 0, 0
        """The owner's, as in `_waiting`."""
        self._depth = 0
        self._waiting: list[tuple[int, int]] = []
        """(rank, number), in the order in which they are served."""
        self._numbers = itertools.count()
        self._quiet_from = 0.0

    def __enter__(self) -> None:
        """Waits for its turn."""
        if self._owner != threading.get_ident():
            self._take(refuse_left, (_RANK.get(), next(self._numbers)))
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        """Gives the turn to the next."""
        self._depth -= 1
        if self._depth == 0:
            self._release()

    def give_way(self) -> None:
        """Lets the questions go first that come before this one by now. Does nothing without the lock."""
        if self._owner != threading.get_ident():
            return
        refuse_left()
        depth, self._depth, turn = self._depth, 0, self._turn
        with self._free:  # Nobody takes the turn before this one waits for it again.
            self._release()
            self._take(lambda: None, turn)  # Raises nothing before it holds the lock, which the caller will release.
        self._depth = depth
        refuse_left()

    def _take(self, check: Callable[[], None], mine: tuple[int, int]) -> None:
        with self._free:
            bisect.insort(self._waiting, mine)
            try:
                while True:
                    check()
                    pause = self._pause(mine)
                    if pause == 0:
                        break
                    self._free.wait(pause)
                self._owner, self._turn = threading.get_ident(), mine
            finally:
                self._waiting.remove(mine)
                self._free.notify_all()

    def _release(self) -> None:
        with self._free:
            self._owner = None
            if self._turn[0] == 0:
                self._quiet_from = time.monotonic() + QUIET
            self._free.notify_all()

    def _pause(self, mine: tuple[int, int]) -> float:
        """Seconds to wait before looking again; 0: it is this one's turn."""
        if self._owner is not None or mine != self._waiting[0]:
            return LOOK
        return max(0.0, self._quiet_from - time.monotonic()) if mine[0] else 0.0


def refuse_left() -> None:
    """Raises GivenUp if the asker of the question that this thread answers has left."""
    left = LEFT.get()
    if left is not None and left.is_set():
        raise GivenUp("the page no longer waits for this answer")
