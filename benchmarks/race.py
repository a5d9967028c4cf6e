"""Contestants take turns on the same batches, each in a process of its own, so that a slow minute slows them all."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.contestant import Facts, Turn
from benchmarks.worker import Assignment, Kind
from clearhead.errors import UserError

PAUSE = 0.3
"""Seconds between turns, for the threads of the last contestant to fall asleep."""


@dataclass(frozen=True)
class Rounds:
    """How long a race is."""

    n_rounds: int
    n_steps: int
    """Training steps of one turn."""
    n_warm_up: int
    """Steps of each contestant before the first round."""


@dataclass(frozen=True)
class Lane:
    """One contestant and what it did, round by round."""

    kind: Kind
    facts: Facts
    turns: Sequence[Turn]

    @property
    def rates(self) -> list[float]:
        """Real target tokens a second, of each round."""
        return [turn.n_tokens / turn.seconds for turn in self.turns]

    @property
    def cpu_rates(self) -> list[float]:
        """Real target tokens a second of CPU time, of each round."""
        return [turn.n_tokens / turn.cpu_seconds for turn in self.turns]

    @property
    def rate(self) -> float:
        return median(self.rates)


class Worker:
    """A contestant's process."""

    def __init__(self, assignment: Assignment) -> None:
        self.kind = assignment.kind
        root = Path(__file__).resolve().parents[1]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
            start_new_session=True,  # Ctrl-C is for the race, which ends its contestants
        )
        self.facts = Facts.model_validate_json(self._ask(assignment.model_dump_json()))

    def turn(self, n_steps: int) -> Turn:
        return Turn.model_validate_json(self._ask(str(n_steps)))

    def _ask(self, line: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            print(line, file=self.process.stdin, flush=True)
        except BrokenPipeError:
            answer = ""
        else:
            answer = self.process.stdout.readline()
        if not answer:
            raise UserError(f"{self.kind}: its process ended with code {self.process.wait()}; see its error above")
        return answer


@contextmanager
def workers(assignments: Sequence[Assignment]) -> Iterator[list[Worker]]:
    """Every contestant's process, ready; ended when the block is left."""
    started: list[Worker] = []
    try:
        for assignment in assignments:
            started.append(Worker(assignment))  # noqa: PERF401 - those already started must be ended
        yield started
    finally:
        for worker in started:
            worker.process.kill()
            worker.process.communicate()


def race(assignments: Sequence[Assignment], rounds: Rounds) -> list[Lane]:
    """Warm up, then rounds in which each takes a turn on the same batches; who begins changes every round."""
    with workers(assignments) as running:
        for worker in running:
            worker.turn(rounds.n_warm_up)
        turns: dict[Kind, list[Turn]] = {worker.kind: [] for worker in running}
        for i in range(rounds.n_rounds):
            first = i % len(running)
            for worker in (*running[first:], *running[:first]):
                time.sleep(PAUSE)
                turns[worker.kind].append(worker.turn(rounds.n_steps))
            rates = ", ".join(f"{kind} {t[-1].n_tokens / t[-1].seconds:,.0f}" for kind, t in turns.items())
            print(f"round {i + 1} of {rounds.n_rounds}: {rates} target tokens/s", file=sys.stderr)
        return [Lane(worker.kind, worker.facts, turns[worker.kind]) for worker in running]
