"""What a race showed: one JSON object, and the table of docs/benchmarks.md."""

from collections.abc import Sequence
from statistics import median
from typing import Annotated

from pydantic import Field

from benchmarks.gpt import GptWorkload
from benchmarks.machine import Machine
from benchmarks.race import Lane, Rounds
from benchmarks.worker import OURS
from benchmarks.workload import Workload
from clearhead.config import Config

BUSY = 0.85
"""Share of its threads' time that a contestant gets on a quiet machine, at least."""


class Row(Config):
    """One contestant."""

    name: str
    precision: str
    parameters: int
    target_tokens_per_second: float
    """Median over the rounds."""
    slowest: float
    fastest: float
    per_cpu_second: float
    """Median of real target tokens a second of CPU time: less sensitive to other processes."""
    relative: float
    """Of the faster peer's median."""
    loss: float
    """At the end: all must have learned about as much."""
    peak_gb: float


class Report(Config):
    """One benchmark on one machine."""

    benchmark: str
    ratio: float
    """Our median rate over the faster peer's."""
    ratio_of_rounds: tuple[float, float]
    """Lowest and highest ratio within one round, in which both had the same batches."""
    ratio_per_cpu_second: float
    goal: float
    peer: str
    """The faster one."""
    quick: bool
    """Too short to mean anything."""
    quiet: bool
    """Nobody waited for a core: in every round, each contestant had its threads running nearly all the time."""
    rows: tuple[Row, ...]
    rounds: int
    steps_a_round: int
    workload: Annotated[Workload | GptWorkload, Field(discriminator="kind")]
    machine: Machine

    @classmethod
    def of(
        cls,
        name: str,
        lanes: Sequence[Lane],
        *,
        rounds: Rounds,
        goal: float,
        quick: bool,
        workload: Workload | GptWorkload,
        machine: Machine,
    ) -> "Report":
        """Ours against the faster of the others."""
        ours = next(lane for lane in lanes if lane.kind == OURS)
        peer = max((lane for lane in lanes if lane.kind != OURS), key=lambda lane: lane.rate)
        ratios = [a / b for a, b in zip(ours.rates, peer.rates, strict=True)]
        return cls(
            benchmark=name,
            ratio=round(ours.rate / peer.rate, 3),
            ratio_of_rounds=(round(min(ratios), 3), round(max(ratios), 3)),
            ratio_per_cpu_second=round(median(ours.cpu_rates) / median(peer.cpu_rates), 3),
            goal=goal,
            peer=peer.kind,
            quick=quick,
            quiet=all(t.cpu_seconds >= BUSY * machine.threads * t.seconds for lane in lanes for t in lane.turns),
            rows=tuple(_row(lane, peer) for lane in lanes),
            rounds=rounds.n_rounds,
            steps_a_round=rounds.n_steps,
            workload=workload,
            machine=machine,
        )

    def markdown(self) -> str:
        """The table, with what it depends on."""
        m, w = self.machine, self.workload
        head = "| | target tokens/s | slowest to fastest round | relative | tokens a CPU-second | peak GB | last loss |"
        body = [
            f"| {r.name} ({r.precision}) | {r.target_tokens_per_second:,.0f} | {r.slowest:,.0f} to {r.fastest:,.0f}"
            f" | {r.relative:.2f} | {r.per_cpu_second:,.0f} | {r.peak_gb:.2f} | {r.loss:.3f} |"
            for r in self.rows
        ]
        low, high = self.ratio_of_rounds
        return "\n".join(
            [
                f"**{self.benchmark}**, {m.date}: ratio **{self.ratio:.2f}** to the faster peer ({self.peer}), rounds"
                f" {low:.2f} to {high:.2f}, by CPU time {self.ratio_per_cpu_second:.2f}; goal {self.goal:.2f}"
                + (". **Quick**: too short to mean anything" if self.quick else "")
                + ("" if self.quiet else ". **Not quiet**: somebody waited for a core; measure again")
                + ".",
                "",
                head,
                "|---|---:|---:|---:|---:|---:|---:|",
                *body,
                "",
                f"{self.rows[0].parameters:,} parameters, {w.described}; {self.rounds} rounds of"
                f" {self.steps_a_round} steps."
                f" {m.processor} ({m.capability}), {m.threads} threads on {m.cores} cores, {m.memory_gb} GB, load"
                f" {m.load}; {m.system}, Python {m.python}, torch {m.torch}, clearhead {m.clearhead}"
                + (f"; {' '.join(f'{k}={v}' for k, v in m.environment.items())}" if m.environment else "")
                + ".",
            ]
        )


def _row(lane: Lane, peer: Lane) -> Row:
    return Row(
        name=lane.kind,
        precision=lane.facts.precision,
        parameters=lane.facts.n_parameters,
        target_tokens_per_second=round(lane.rate, 1),
        slowest=round(min(lane.rates), 1),
        fastest=round(max(lane.rates), 1),
        per_cpu_second=round(median(lane.cpu_rates), 1),
        relative=round(lane.rate / peer.rate, 3),
        loss=round(lane.turns[-1].loss, 4),
        peak_gb=round(max(turn.peak_gb for turn in lane.turns), 2),
    )
