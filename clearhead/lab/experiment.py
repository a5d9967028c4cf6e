"""What an experiment is: a claim with its source, a measurement, and the thresholds that judge it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Literal

Label = str | float
Verdict = Literal["holds", "holds with limits", "does not hold", "not finished"]


@dataclass(frozen=True)
class Row:
    """What was measured in one case: its labels, such as d_k=64, and figures by name."""

    labels: Mapping[str, Label]
    values: Mapping[str, float]


@dataclass(frozen=True)
class Figures:
    """The rows of one seed."""

    rows: Sequence[Row]

    def all(self, name: str, **labels: Label) -> list[float]:
        """The figure `name` of every row with these labels, in order."""
        return [row.values[name] for row in self.rows if labels.items() <= row.labels.items() and name in row.values]

    def at(self, name: str, **labels: Label) -> float:
        """The mean of the figure over the rows with these labels."""
        return mean(self.all(name, **labels))


@dataclass(frozen=True)
class Check:
    """A figure and where it must lie for the claim to hold."""

    what: str
    figure: Callable[[Figures], float]
    at_least: float | None = None
    at_most: float | None = None
    is_limit: bool = False
    """Whether a failure limits the claim and does not refute it."""

    def passes(self, value: float) -> bool:
        """Whether a value lies where it must; NaN does not."""
        above = self.at_least is None or value >= self.at_least
        return above and (self.at_most is None or value <= self.at_most)

    @property
    def expected(self) -> str:
        """`at least 0.9`, `at most 1e-6` or `0.9 to 1.1`."""
        if self.at_least is not None and self.at_most is not None:
            return f"{self.at_least:g} to {self.at_most:g}"
        return f"at most {self.at_most:g}" if self.at_least is None else f"at least {self.at_least:g}"


@dataclass(frozen=True)
class Plot:
    """A figure over a label: lines where the label is a number, bars where it is a word."""

    x: str
    y: str
    by: str | None = None
    """The label that separates lines or bars."""
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Experiment:
    """A claim that is measured."""

    name: str
    claim: str
    source: str
    """Where the documents state it, and papers."""
    measure: Callable[[int, bool], Iterator[Row]]
    """(seed, quick) -> rows, each as soon as it is measured."""
    checks: Sequence[Check]
    plot: Plot
    needs: tuple[str, ...] = ()
    """Optional packages."""
    data: tuple[str, ...] = ()
    """Names of the data sets that it reads."""


@dataclass(frozen=True)
class Judgement:
    """A check with its figure for each seed."""

    check: Check
    values: Sequence[float]

    @property
    def share(self) -> float:
        """The share of seeds on which it passes."""
        return mean(map(self.check.passes, self.values))


@dataclass(frozen=True)
class Result:
    """The rows of each seed that is finished, and what follows from them."""

    experiment: Experiment
    seeds: Mapping[int, Figures]
    quick: bool
    wanted: int
    """Seeds that were asked for."""
    seconds: float
    cpu_seconds: float
    """Seconds of the processor, which do not count what else the machine does."""

    @property
    def finished(self) -> bool:
        return len(self.seeds) == self.wanted

    @property
    def judgements(self) -> list[Judgement]:
        """Every check, over all finished seeds."""
        return [Judgement(one, [one.figure(f) for f in self.seeds.values()]) for one in self.experiment.checks]

    @property
    def verdict(self) -> Verdict:
        """`holds` if every check passes on every seed, `does not hold` if a check of the claim itself fails on most."""
        if not self.seeds:
            return "not finished"
        if any(not one.check.is_limit and one.share < 0.5 for one in self.judgements):
            return "does not hold"
        return "holds" if all(one.share == 1 for one in self.judgements) else "holds with limits"

    @property
    def stable(self) -> bool:
        """Whether each check has the same outcome on every seed."""
        return all(one.share in (0, 1) for one in self.judgements)
