"""Encoded examples: any that can be taken by their numbers, and those in parts; what tasks may do besides.

Imports no torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, Self, TypeVar, runtime_checkable

from clearhead.brief import brief


class Rows(Protocol):
    """Encoded examples that can be selected by number."""

    def take(self, rows: Sequence[int]) -> Self:
        """The examples with these numbers."""
        ...

    @property
    def sizes(self) -> Sequence[int]:
        """The tokens of each example."""
        ...


@runtime_checkable
class Settles(Protocol):
    """A task that completes its recipe from the data."""

    def settle(self, recipe: Any) -> tuple[Any, Sequence[str]]:
        """The recipe completed from the data, and the lines that report it."""
        ...


E = TypeVar("E")
D = TypeVar("D", bound=Rows)


@dataclass(frozen=True)
class EncodedExamples(Generic[E, D]):
    """Examples, and the network's inputs for them."""

    examples: Sequence[E]
    inputs: D

    def take(self, rows: Sequence[int]) -> Self:
        """The examples with these numbers."""
        return type(self)([self.examples[i] for i in rows], self.inputs.take(rows))

    @property
    def sizes(self) -> Sequence[int]:
        """The tokens of each example."""
        return self.inputs.sizes


@dataclass(frozen=True)
class Part:
    """A part of an example."""

    example: int
    """The number of the example."""
    ids: list[int]


P = TypeVar("P", bound=Part)


@dataclass(frozen=True)
class Parts(Generic[P]):
    """The parts of some examples, in order."""

    __repr__ = brief

    parts: list[P]
    n_examples: int

    def take(self, rows: Sequence[int]) -> Self:
        """The parts of the examples with these numbers."""
        new = {row: i for i, row in enumerate(rows)}
        found = [replace(part, example=new[part.example]) for part in self.parts if part.example in new]
        return replace(self, parts=found, n_examples=len(rows))

    @property
    def ids(self) -> list[list[int]]:
        """The ids of each part."""
        return [part.ids for part in self.parts]

    @property
    def lengths(self) -> list[int]:
        """The number of ids of each part."""
        return [*map(len, self.ids)]

    @property
    def sizes(self) -> list[int]:
        """The number of ids of each example."""
        sizes = [0] * self.n_examples
        for part in self.parts:
            sizes[part.example] += len(part.ids)
        return sizes
