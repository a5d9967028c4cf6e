"""What an experiment is: a claim with its source, a measurement, and the thresholds that judge it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import sub, truediv
from statistics import mean
from types import ModuleType
from typing import Any, Literal

Label = str | float
Verdict = Literal["holds", "holds with limits", "does not hold", "undecided", "not finished"]
Role = Literal["claim", "limit", "control"]
"""claim: a failure refutes the claim; limit: it restricts the claim; control: the experiment itself does not work."""
CONTROL = "A control fails: the experiment does not work as it should and says nothing about the claim."


@dataclass(frozen=True)
class Row:
    """What was measured in one case: its labels, such as d_k=64, and figures by name."""

    labels: Mapping[str, Label]
    values: Mapping[str, float]


@dataclass(frozen=True)
class Figures:
    """The rows of one seed."""

    rows: Sequence[Row]
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """Seconds of the processor, which do not count what else the machine does."""

    def all(self, name: str, **labels: Label) -> list[float]:
        """The figure `name` of every row with these labels, in order."""
        return [row.values[name] for row in self.rows if labels.items() <= row.labels.items() and name in row.values]

    def at(self, name: str, **labels: Label) -> float:
        """The mean of the figure over the rows with these labels."""
        return mean(self.all(name, **labels))


def figure(form: Any, module: ModuleType) -> Callable[[Figures], float]:
    """The figure that a check looks at, as a TOML file writes it.

    `["loss", {depth = 2}]` is the mean of that figure over the rows with these labels; `["max", FIGURE]` and
    `["min", FIGURE]` take one of the rows, `["/", A, B]` and `["-", A, B]` compare two, and a word names a function of
    the experiment's module.
    """
    if isinstance(form, str):
        return getattr(module, form)
    return lambda figures: _value(form, figures)


def _value(form: Any, figures: Figures) -> float:
    match form:
        case ["/" | "-" as sign, left, right]:
            return {"/": truediv, "-": sub}[sign](_value(left, figures), _value(right, figures))
        case ["max" | "min" as extreme, [name, *labels]]:
            return {"max": max, "min": min}[extreme](figures.all(name, **dict(*labels)))
        case [str(name), *labels]:
            return figures.at(name, **dict(*labels))
        case _:
            return form


@dataclass(frozen=True)
class Check:
    """A figure and the range in which the claim holds, or the experiment works."""

    what: str
    figure: Callable[[Figures], float]
    at_least: float | None = None
    at_most: float | None = None
    role: Role = "claim"
    otherwise: str = ""
    """What a failure means, in a sentence for a reader who does not know the experiment."""

    def passes(self, value: float) -> bool:
        """True if a value is in the range; NaN never is."""
        above = self.at_least is None or value >= self.at_least
        return above and (self.at_most is None or value <= self.at_most)

    @property
    def expected(self) -> str:
        """`at least 0.9`, `at most 1e-6` or `0.9 to 1.1`."""
        if self.at_least is not None and self.at_least == self.at_most:
            return f"{self.at_least:g}"
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
    """The documents that state the claim, and papers."""
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

    @property
    def weight(self) -> int:
        """The priority in the verdict: 0 for a control that fails on most seeds, 5 for a check that changes nothing."""
        role = self.check.role
        if self.share == 1:
            return 4 if role == "claim" else 5
        if role == "limit":
            return 3
        return 2 if self.share >= 0.5 else 1 if role == "claim" else 0


@dataclass(frozen=True)
class Result:
    """The rows of each seed that is finished, and what follows from them."""

    experiment: Experiment
    seeds: Mapping[int, Figures]
    quick: bool
    wanted: int
    """Seeds that were asked for."""

    @property
    def finished(self) -> bool:
        return len(self.seeds) == self.wanted

    @property
    def seconds(self) -> float:
        return sum(one.seconds for one in self.seeds.values())

    @property
    def cpu_seconds(self) -> float:
        return sum(one.cpu_seconds for one in self.seeds.values())

    @property
    def judgements(self) -> list[Judgement]:
        """Every check, over all finished seeds."""
        return [Judgement(one, [one.figure(f) for f in self.seeds.values()]) for one in self.experiment.checks]

    @property
    def deciding(self) -> Judgement:
        """The first check of those that say most about the verdict."""
        return min(self.judgements, key=lambda one: one.weight)

    @property
    def verdict(self) -> Verdict:
        """`undecided` if a control fails on most seeds, or else `does not hold` if a check of the claim does.

        `holds` if every check passes on every seed.
        """
        if not self.seeds:
            return "not finished"
        found: dict[int, Verdict] = {0: "undecided", 1: "does not hold", 2: "holds with limits", 3: "holds with limits"}
        return found.get(min((judgement.weight for judgement in self.judgements), default=5), "holds")

    @property
    def finding(self) -> str:
        """What was found, in a sentence: the claim, or what the check that decides says otherwise."""
        if self.verdict == "holds":
            return self.experiment.claim
        one, n = self.deciding, len(self.seeds)
        says = CONTROL if one.check.role == "control" else one.check.otherwise
        failed = round((1 - one.share) * n)
        return f"{says.rstrip('.')}. This is so on {failed} of {n} seeds." if says and 0 < failed < n else says

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdict of each seed alone."""
        return [replace(self, seeds={seed: one}).verdict for seed, one in self.seeds.items()]

    @property
    def stable(self) -> bool:
        """True if every seed alone has the same verdict."""
        return len(set(self.verdicts)) <= 1

    @property
    def doubtful(self) -> list[Judgement]:
        """The checks whose outcome depends on the seed."""
        return [judgement for judgement in self.judgements if judgement.share not in (0, 1)]
