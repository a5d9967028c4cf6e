"""Scores, their bootstrap intervals, and the difference between two scores of the same examples. Imports no torch."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from clearhead.brief import brief
from clearhead.errors import UserError

SEED = 0
RESAMPLES = 1000
SHARE = 0.95
Z = 1.96
"""The normal deviate of SHARE."""


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """A score as a function of the examples it is measured on."""

    __repr__ = brief

    score: Callable[..., float]
    """Computes the score from the columns. Another process may run it, so it is a module's function or a `partial`."""
    columns: tuple[np.ndarray, ...]
    """What the score is computed from; the first axis of each counts the examples."""
    is_share: bool = False
    """Whether the score lies between 0, nothing is right, and 1, everything is."""

    def __len__(self) -> int:
        return len(self.columns[0])

    def of(self, rows: np.ndarray) -> float:
        """The score of these examples, some of which may occur several times."""
        return self.score(*(column[rows] for column in self.columns))

    @cached_property
    def interval(self) -> tuple[float, float]:
        """The 95% percentile bootstrap interval (Efron and Tibshirani 1993, 13.3). Computed on first use.

        If every resample of a share is 0, or every one 1, it is Wilson's interval (1927) for as many examples.
        """
        low, high = _middle(np.array([self.of(draw) for draw in _draws(len(self))]))
        unknown = Z**2 / (len(self) + Z**2) if self.is_share and low == high else 0.0
        return low - unknown * (low == 1), high + unknown * (high == 0)


@dataclass(frozen=True)
class Difference:
    """The score of the second model minus that of the first, on the same examples."""

    value: float
    interval: tuple[float, float]
    """The 95% interval of the difference."""
    p: float
    """The two-sided p-value: how often resamples of two equal models differ by as much."""


def difference(first: ScoredRows, second: ScoredRows) -> Difference:
    """The difference of two scores, by paired bootstrap resampling of their examples (Koehn 2004).

    The p-value counts the resamples whose difference is as far from their mean as the measured difference is from 0.
    If each score is 0 or 1, its interval comes from those of the two (Newcombe 1998, method 10).
    """
    everything = np.arange(len(first))
    before, after = first.of(everything), second.of(everything)
    value = after - before
    found = np.array([second.of(draw) - first.of(draw) for draw in _draws(len(first))])
    extreme = np.abs(found - found.mean()) >= abs(value) - 1e-12
    low, high = _middle(found)
    if {before, after} <= {0, 1}:
        (least, most), (lower, upper) = first.interval, second.interval
        low, high = value - math.hypot(after - lower, most - before), value + math.hypot(upper - after, before - least)
    return Difference(value, (low, high), float((extreme.sum() + 1) / (len(found) + 1)))


def intervals_of_means(values: np.ndarray) -> np.ndarray:
    """m 2: the 95% percentile bootstrap intervals of the means of the columns of `values`, n m, over its rows."""
    means = np.stack([values[draw].mean(0) for draw in _draws(len(values))])
    return np.quantile(means, [(1 - SHARE) / 2, (1 + SHARE) / 2], axis=0).T


def _draws(n: int) -> Iterator[np.ndarray]:
    random = np.random.default_rng(SEED)
    return (random.integers(n, size=n) for _ in range(RESAMPLES))


def _middle(values: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - SHARE) / 2, (1 + SHARE) / 2])
    return float(low), float(high)


@dataclass(frozen=True)
class Score:
    """One figure."""

    name: str
    value: float
    signature: str = ""
    """How it was computed, where that differs from one paper to another."""
    is_smoothed: bool = False
    """Whether smoothing alone keeps it above 0, as that of a BLEU without one matching 4-gram: it says little."""
    unit: str = ""
    is_bounded: bool = False
    """Whether its interval is shown."""
    rows: ScoredRows | None = field(default=None, compare=False, repr=False)
    """What each example adds to it, from which intervals and comparisons with another model come."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """Where 95% of bootstrap resamples of the rows fall, if that is shown. Takes a while when it is first asked."""
        return self.rows.interval if self.is_bounded and self.rows is not None else None

    def __str__(self) -> str:
        return f"{self.name} = {self.value:.2f}" + (f" ({self.signature})" if self.signature else "")


def perplexity(nats: float, n_tokens: int) -> Score:
    """exp(nats / n_tokens): the mean uncertainty, as a number of equally likely choices."""
    if n_tokens <= 0:
        raise UserError(f"perplexity: expected at least one token, got {n_tokens}")
    mean = nats / n_tokens
    return Score("perplexity", math.exp(mean) if mean < math.log(1e300) else math.inf)


def bits_per_byte(nats: float, n_bytes: float) -> Score:
    """nats / (ln 2 * n_bytes): comparable between tokenizers; the bytes are those of the text in UTF-8."""
    if n_bytes <= 0:
        raise UserError(f"bits per byte: expected at least one byte, got {n_bytes}")
    return Score("bits_per_byte", nats / (math.log(2) * n_bytes))


def of_each(score: Score) -> list[float]:
    """The score of each example alone. Raises UserError if it is not one of examples."""
    if score.rows is None:
        raise UserError(f"{score.name}: expected a score of examples, got one of the whole data")
    return [score.rows.of(np.array([i])) for i in range(len(score.rows))]


def mean(values: np.ndarray) -> float:
    """The mean; n."""
    return float(values.mean())


def ratio(parts: np.ndarray, wholes: np.ndarray) -> float:
    """The sum of the parts divided by the sum of the wholes, n and n; 0 if the wholes are empty."""
    return float(parts.sum() / max(wholes.sum(), 1))


def scored(name: str, score: Callable[..., float], *columns: np.ndarray, unit: str = "0 to 1") -> Score:
    """A score of the rows of these columns with its 95% interval."""
    rows = ScoredRows(score, columns, is_share=unit == "0 to 1")
    return Score(name, score(*columns), unit=unit, is_bounded=True, rows=rows)
