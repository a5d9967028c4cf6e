"""Contestants take turns on the same batches, each in a process of its own, so that a slow minute slows them all."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.contestants.contestant import Facts, Turn
from benchmarks.contestants.worker import Assignment, Kind
from benchmarks.racing.processes import Process, in_turn, started
from clearhead.training.profile import CEILING_SIZE

N_CEILINGS = 2
"""Times that each contestant's ceiling is measured; the higher counts."""


@dataclass(frozen=True)
class Rounds:
    """How long a race is."""

    n_rounds: int
    n_steps: int
    """Training steps of one turn."""
    n_warm_up: int
    """Steps of each contestant before the first round."""
    product: int = CEILING_SIZE["cpu"]
    """Rows and columns of the matrices whose product is the ceiling."""


@dataclass(frozen=True)
class Lane:
    """One contestant and what it did, round by round."""

    kind: Kind
    facts: Facts
    turns: Sequence[Turn]
    ceiling: float
    """FLOPs a second of a large matrix product in its arithmetic."""

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


class Worker(Process):
    """A contestant's process."""

    def __init__(self, assignment: Assignment) -> None:
        super().__init__(assignment.kind, "benchmarks.contestants.worker", assignment.model_dump_json())
        self.kind, self.facts = assignment.kind, Facts.model_validate_json(self.answer)

    def turn(self, n_steps: int) -> Turn:
        return Turn.model_validate_json(self.ask(f"steps {n_steps}"))

    def ceiling(self, size: int) -> float:
        return float(self.ask(f"ceiling {size}"))


def race(assignments: Sequence[Assignment], rounds: Rounds) -> list[Lane]:
    """Warm up, then rounds in which each takes a turn on the same batches; who begins changes every round."""
    with started(Worker, assignments) as running:
        for worker in running:
            worker.turn(rounds.n_warm_up)
        turns: dict[Kind, list[Turn]] = {worker.kind: [] for worker in running}
        for i in range(rounds.n_rounds):
            for worker in in_turn(running, i):
                turns[worker.kind].append(worker.turn(rounds.n_steps))
            rates = ", ".join(f"{kind} {t[-1].n_tokens / t[-1].seconds:,.0f}" for kind, t in turns.items())
            print(f"round {i + 1} of {rounds.n_rounds}: {rates} target tokens/s", file=sys.stderr)
        ceilings: dict[Kind, float] = {}
        for i in range(N_CEILINGS):
            for worker in in_turn(running, i):
                ceilings[worker.kind] = max(ceilings.get(worker.kind, 0.0), worker.ceiling(rounds.product))
        return [Lane(w.kind, w.facts, turns[w.kind], ceilings[w.kind]) for w in running]
