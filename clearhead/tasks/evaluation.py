"""What an evaluation finds: scores, samples, examples and findings; and which examples it measures."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import JsonValue

from clearhead.brief import brief
from clearhead.randomness import key
from clearhead.tasks.scores import Score


@dataclass(frozen=True)
class Example:
    """An example of the data, the network's output for it, and its error."""

    source: str
    output: str
    reference: str
    error: float
    """A loss in nats, or 100 minus the score of a sentence: larger is worse."""
    is_wrong: bool
    """Whether the output is not the reference."""
    place: str = ""
    """The name of its file and its row, if it has them."""


@dataclass(frozen=True)
class Finding:
    """What an evaluation shows besides its scores, such as a confusion table."""

    name: str
    """For programs: `confusion`."""
    lines: tuple[str, ...]
    """For a person."""
    values: JsonValue
    """For a program."""


N_MISTAKES = 5


def worst(examples: Sequence[Example], n: int = N_MISTAKES) -> list[Example]:
    """The n wrong examples with the largest errors, the worst first."""
    return sorted(filter(lambda example: example.is_wrong, examples), key=lambda example: -example.error)[:n]


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


@dataclass(frozen=True)
class Sample:
    """An example and the network's output for it."""

    source: str
    output: str
    reference: str


@dataclass(frozen=True)
class Evaluation:
    """The scores of a network on a split, some outputs to read, and what each example adds."""

    __repr__ = brief

    scores: tuple[Score, ...]
    samples: tuple[Sample, ...] = ()
    outputs: tuple[str, ...] = ()
    """Every output, in the order of the data, where the task writes text."""
    loss: float = math.nan
    """Mean loss, such as nats a token, which decides between equal main scores."""
    examples: tuple[Example, ...] = ()
    """Every example, in the order of the data. `compare` and the page of mistakes show them; row i of `Score.rows`
    belongs to example i."""
    findings: tuple[Finding, ...] = ()

    def value(self, name: str) -> float:
        """The value of a score, by its name."""
        return self.score(name).value

    def score(self, name: str) -> Score:
        """A score, by its name."""
        return next(score for score in self.scores if score.name == name)


def worst_samples(examples: Sequence[Example]) -> tuple[Sample, ...]:
    """The wrong examples with the largest errors as samples, each with its place, unless that is its source."""
    return tuple(
        Sample(one.source if one.place == one.source else f"{one.place}: {one.source}", one.output, one.reference)
        for one in worst(examples)
    )
