"""What a race showed: one JSON object, and the table of docs/benchmarks.md."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Annotated

from pydantic import Field, computed_field

from benchmarks.contestants.gpt import GptWorkload
from benchmarks.contestants.worker import OURS, Kind
from benchmarks.contestants.workload import Workload
from benchmarks.racing.flops import flops_per_token
from benchmarks.racing.lines import Line
from benchmarks.racing.machine import Machine
from benchmarks.racing.race import Lane, Rounds
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
    mfu: float
    """Model FLOPs of the median rate, as a share of the ceiling."""
    ceiling: float
    """FLOPs a second of a large matrix product in this arithmetic, in the same process."""


class Versus(Config):
    """Ours against a peer that is not the fastest, with a goal of its own."""

    peer: str
    ratio: float
    ratio_of_rounds: tuple[float, float]
    ratio_per_cpu_second: float
    goal: float

    def __str__(self) -> str:
        low, high = self.ratio_of_rounds
        return (
            f"Ratio **{self.ratio:.2f}** to {self.peer}, rounds {low:.2f} to {high:.2f},"
            f" by CPU time {self.ratio_per_cpu_second:.2f}; goal {self.goal:.2f}."
        )


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
    """The fastest one."""
    others: tuple[Versus, ...]
    flops_per_token: float
    """Of the model in training, on a real target token: the same for all."""
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
        others: Mapping[Kind, float],
        quick: bool,
        workload: Workload | GptWorkload,
        machine: Machine,
    ) -> "Report":
        """Ours against the fastest of the peers, and against `others` with their goals."""
        ours = next(lane for lane in lanes if lane.kind == OURS)
        peer = max((lane for lane in lanes if lane.kind != OURS), key=lambda lane: lane.rate)
        flops = flops_per_token(workload)
        return cls(
            benchmark=name,
            ratio=round(ours.rate / peer.rate, 3),
            ratio_of_rounds=_spread(ours, peer),
            ratio_per_cpu_second=_by_cpu(ours, peer),
            goal=goal,
            peer=peer.kind,
            others=tuple(
                Versus(
                    peer=lane.kind,
                    ratio=round(ours.rate / lane.rate, 3),
                    ratio_of_rounds=_spread(ours, lane),
                    ratio_per_cpu_second=_by_cpu(ours, lane),
                    goal=others[lane.kind],
                )
                for lane in lanes
                if lane.kind in others
            ),
            flops_per_token=round(flops),
            quick=quick,
            quiet=all(t.cpu_seconds >= BUSY * machine.threads * t.seconds for lane in lanes for t in lane.turns),
            rows=tuple(_row(lane, peer, flops) for lane in lanes),
            rounds=rounds.n_rounds,
            steps_a_round=rounds.n_steps,
            workload=workload,
            machine=machine,
        )

    @computed_field
    @property
    def lines(self) -> list[Line]:
        """The row of the page."""
        low, high = self.ratio_of_rounds
        share = self.rows[0].mfu
        return [
            Line(
                what=f"train {self.benchmark}", peer=self.peer, ratio=self.ratio, low=low, high=high, share=share,
                ceiling="matrix products",
            )
        ]  # fmt: skip

    def markdown(self) -> str:
        """The table, with what it depends on."""
        m, w = self.machine, self.workload
        titles = ["", f"{w.counted}/s", "slowest to fastest round", "relative", "tokens a CPU-second"]
        titles += ["MFU", "ceiling, GFLOP/s", "peak GB", "last loss"]
        body = [
            f"| {_title(r)} | {r.target_tokens_per_second:,.0f} | {r.slowest:,.0f} to {r.fastest:,.0f}"
            f" | {r.relative:.2f} | {r.per_cpu_second:,.0f} | {r.mfu:.0%}"
            f" | {r.ceiling / 1e9:,.0f} | {r.peak_gb:.2f} | {r.loss:.3f} |"
            for r in self.rows
        ]
        depends = (
            f"The model has {self.rows[0].parameters:,} parameters: {w.described}. Each library trained it for"
            f" {self.rounds} rounds of {self.steps_a_round} steps each. MFU: the model's"
            f" {self.flops_per_token / 1e6:.1f} MFLOP a token, as a share of a large matrix product's rate in the same"
            f" arithmetic. {m}"
        )
        low, high = self.ratio_of_rounds
        return "\n".join(
            [
                f"**{self.benchmark}**, {m.date}: ratio **{self.ratio:.2f}** to the fastest peer ({self.peer}), rounds"
                f" {low:.2f} to {high:.2f}, by CPU time {self.ratio_per_cpu_second:.2f}; goal {self.goal:.2f}"
                + (". **Quick**: too short to mean anything" if self.quick else "")
                + ("" if self.quiet else ". **Not quiet**: somebody waited for a core; measure again")
                + ".",
                "",
                *(line for one in self.others for line in (str(one), "")),
                f"| {' | '.join(titles)} |".replace("|  |", "| |"),
                f"|---{'|---:' * (len(titles) - 1)}|",
                *body,
                "",
                depends,
            ]
        )


def _spread(ours: Lane, peer: Lane) -> tuple[float, float]:
    """Lowest and highest ratio within one round."""
    ratios = [a / b for a, b in zip(ours.rates, peer.rates, strict=True)]
    return round(min(ratios), 3), round(max(ratios), 3)


def _by_cpu(ours: Lane, peer: Lane) -> float:
    return round(median(ours.cpu_rates) / median(peer.cpu_rates), 3)


def _title(row: Row) -> str:
    """What it computes in, where the name does not say so."""
    return f"{row.name} ({row.precision})" if row.name == OURS else row.name


def _row(lane: Lane, peer: Lane, flops: float) -> Row:
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
        mfu=round(flops * lane.rate / lane.ceiling, 3),
        ceiling=round(lane.ceiling),
    )
