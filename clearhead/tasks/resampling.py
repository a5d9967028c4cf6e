"""Bootstrap: intervals of scores, and of the difference between two scores of the same examples. Imports no torch."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from clearhead.brief import brief

RESAMPLES = 1000
SHARE = 0.95


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """A score as a function of the examples it is measured on."""

    __repr__ = brief

    score: Callable[..., float]
    """Computes the score from the columns. Another process may run it, so it is a module's function or a `partial`."""
    columns: tuple[np.ndarray, ...]
    """What the score is computed from; the first axis of each counts the examples."""

    def __len__(self) -> int:
        return len(self.columns[0])

    def of(self, rows: np.ndarray) -> float:
        """The score of these examples, some of which may occur several times."""
        return self.score(*(column[rows] for column in self.columns))

    @cached_property
    def interval(self) -> tuple[float, float]:
        """The 95% percentile bootstrap interval (Efron and Tibshirani 1993, 13.3). Computed on first use."""
        return _middle(np.array([self.of(draw) for draw in _draws(len(self))]))


@dataclass(frozen=True)
class Difference:
    """The score of the second model minus that of the first, on the same examples."""

    value: float
    interval: tuple[float, float]
    """Where 95% of paired bootstrap resamples of the examples fall."""
    p: float
    """The two-sided p-value: how often resamples of two equal models differ by as much."""


def difference(first: ScoredRows, second: ScoredRows) -> Difference:
    """The difference of two scores, by paired bootstrap resampling of their examples (Koehn 2004).

    The p-value counts the resamples whose difference is as far from their mean as the measured difference is from 0.
    """
    everything = np.arange(len(first))
    value = second.of(everything) - first.of(everything)
    found = np.array([second.of(draw) - first.of(draw) for draw in _draws(len(first))])
    extreme = np.abs(found - found.mean()) >= abs(value) - 1e-12
    return Difference(value, _middle(found), float((extreme.sum() + 1) / (len(found) + 1)))


def intervals_of_means(values: np.ndarray) -> np.ndarray:
    """m 2: the 95% percentile bootstrap intervals of the means of the columns of `values`, n m, over its rows."""
    means = np.stack([values[draw].mean(0) for draw in _draws(len(values))])
    return np.quantile(means, [(1 - SHARE) / 2, (1 + SHARE) / 2], axis=0).T


def _draws(n: int) -> Iterator[np.ndarray]:
    random = np.random.default_rng(0)
    return (random.integers(n, size=n) for _ in range(RESAMPLES))


def _middle(values: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - SHARE) / 2, (1 + SHARE) / 2])
    return float(low), float(high)
