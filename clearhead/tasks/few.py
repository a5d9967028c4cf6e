"""Which validation examples an evaluation during training measures: all, or always the same few of many."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, Self, TypeVar

import numpy as np

from clearhead.randomness import key

Most = Literal["auto", "all"] | int
TOKENS = 1 << 17
"""Tokens of an evaluation that measures few examples because they are many."""
LEAST = 1000
"""Examples that it measures at least: an accuracy of 90% then has a standard error of one point."""


@dataclass(frozen=True)
class Few:
    """Some validation examples."""

    rows: Sequence[int]
    """Their numbers, in the order of the data."""
    n: int
    """The number of all validation examples."""

    def __str__(self) -> str:
        return f"{len(self.rows):,} of the {self.n:,} validation examples"


def few_of(sizes: Sequence[int], most: Most) -> Few | None:
    """The examples to measure, by the tokens of each example; None for all.

    `most` is `training.evaluate_examples`. The choice depends on nothing but the sizes, so that runs with other seeds
    measure the same examples, and a smaller choice is a part of a larger one.
    """
    n, total = len(sizes), int(np.sum(sizes))
    if most == "all" or (isinstance(most, int) and n <= most) or (most == "auto" and (n <= LEAST or total <= TOKENS)):
        return None
    order = np.random.default_rng(key(0, "evaluated")).permutation(n)
    if most == "auto":
        most = max(LEAST, int(np.searchsorted(np.cumsum(np.asarray(sizes)[order]), TOKENS, side="right")))
    return Few(sorted(order[:most].tolist()), n)


class Split(Protocol):
    """Examples from which a selection can be made."""

    def taken(self, rows: Sequence[int]) -> Self:
        """The examples with these numbers."""
        ...


S = TypeVar("S", bound=Split)


def part_of(split: S, few: Few | None) -> S:
    """The examples of a split to measure."""
    return split if few is None else split.taken(few.rows)
