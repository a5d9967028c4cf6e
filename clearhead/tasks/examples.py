"""The examples and the findings of an evaluation. Imports no torch."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue


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


def worst(examples: Sequence[Example], n: int) -> list[Example]:
    """The n wrong examples with the largest errors, the worst first."""
    return sorted((one for one in examples if one.is_wrong), key=lambda one: -one.error)[:n]
