"""Examples as ids, each in one part or in several that the network reads apart. Imports no torch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, Self, TypeVar

from clearhead.brief import brief


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
