"""Contestants in processes of their own: asked line by line, in turn."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from clearhead.errors import UserError

PAUSE = 0.3
"""Seconds between turns, for the threads of the last contestant to fall asleep."""


class Process:
    """One contestant: a module of the benchmarks that reads its task, answers, and answers each further line."""

    def __init__(self, name: str, module: str, task: str) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).resolve().parents[2],
            start_new_session=True,  # Ctrl-C is for the race, which ends its contestants
        )
        self.answer = self.ask(task)

    def ask(self, line: str) -> str:
        """A line for a line."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            print(line, file=self.process.stdin, flush=True)
        except BrokenPipeError:
            answer = ""
        else:
            answer = self.process.stdout.readline()
        if not answer:
            raise UserError(f"{self.name}: its process ended with code {self.process.wait()}; see its error above")
        return answer


P = TypeVar("P", bound=Process)
A = TypeVar("A")


@contextmanager
def started(kind: Callable[[A], P], assignments: Sequence[A]) -> Iterator[list[P]]:
    """Every contestant's process, ready; ended when the block is left."""
    running: list[P] = []
    try:
        for assignment in assignments:
            running.append(kind(assignment))  # noqa: PERF401 - those already started must be ended
        yield running
    finally:
        for one in running:
            one.process.kill()
            one.process.communicate()


def in_turn(running: Sequence[P], i: int) -> Iterator[P]:
    """Each in round i, after a pause; who begins changes every round."""
    first = i % len(running)
    for one in (*running[first:], *running[:first]):
        time.sleep(PAUSE)
        yield one
