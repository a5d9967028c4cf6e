"""`Turns`: one computation at a time. What a reader looks at comes first, a sweep gives way between two pieces."""

import bisect
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from clearhead.errors import UserError

QUIET = 0.05
"""Seconds without another question after which a sweep goes on: a place asks several, one after the other."""
LOOK = 0.1
"""Seconds after which a waiting thread looks whether its asker has left."""
LEFT: ContextVar[threading.Event | None] = ContextVar("LEFT", default=None)
"""Set once the asker of the question that this thread answers no longer waits."""
_SWEEPS: ContextVar[bool] = ContextVar("_SWEEPS", default=False)


class GivenUp(UserError):
    """The asker has left."""


@contextmanager
def sweeping() -> Iterator[None]:
    """Turns that this thread takes inside come after those of all other questions."""
    token = _SWEEPS.set(True)
    try:
        yield
    finally:
        _SWEEPS.reset(token)


class Turns:
    """A reentrant lock with two queues: sweeps wait until nobody else does, and each queue is served in order.

    `with turns:` raises GivenUp if the asker has left.
    """

    def __init__(self) -> None:
        self._free = threading.Condition()
        self._owner: int | None = None
        self._depth = 0
        self._waiting: list[tuple[bool, int]] = []
        """(whether it is a sweep, number), in the order in which they are served."""
        self._numbers = itertools.count()
        self._quiet_from = 0.0

    def __enter__(self) -> None:
        """Waits for its turn."""
        if self._owner != threading.get_ident():
            self._take(_refuse_left)
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
        _refuse_left()
        depth, self._depth = self._depth, 0
        self._release()
        self._take(lambda: None)  # Raises nothing before it holds the lock again, which the caller will release.
        self._depth = depth
        _refuse_left()

    def _take(self, check: Callable[[], None]) -> None:
        with self._free:
            mine = (_SWEEPS.get(), next(self._numbers))
            bisect.insort(self._waiting, mine)
            try:
                while True:
                    check()
                    pause = self._pause(mine)
                    if pause == 0:
                        break
                    self._free.wait(pause)
                self._owner = threading.get_ident()
            finally:
                self._waiting.remove(mine)
                self._free.notify_all()

    def _release(self) -> None:
        with self._free:
            self._owner = None
            if not _SWEEPS.get():
                self._quiet_from = time.monotonic() + QUIET
            self._free.notify_all()

    def _pause(self, mine: tuple[bool, int]) -> float:
        """Seconds to wait before looking again; 0: it is this one's turn."""
        if self._owner is not None or mine != self._waiting[0]:
            return LOOK
        return max(0.0, self._quiet_from - time.monotonic()) if mine[0] else 0.0


def _refuse_left() -> None:
    left = LEFT.get()
    if left is not None and left.is_set():
        raise GivenUp("the page no longer waits for this answer")
