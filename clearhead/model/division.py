"""How the weights of a part divide among processes, by axis, for tensor parallelism."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

Axis = Literal["heads", "units"]


@dataclass(frozen=True)
class Division:
    """A child or attribute of a part whose heads or feed-forward units are divided among processes."""

    name: str
    axis: Axis
    along: Literal["outputs", "inputs", "states"] | None = None
    """outputs: each process makes its share of the result; inputs: it reads its share, and the results add up; states:
    the module treats each head by itself, and its weights stay whole. None: a plain number or list, which is cut."""


def divisions_of(module: nn.Module) -> tuple[Division, ...]:
    """The shares that a part declares; empty if every process computes the whole part."""
    return getattr(module, "divisions", ())


def cut(value: object, rank: int, size: int) -> object:
    """This process's share of a count, or of a list with one entry for each head."""
    if isinstance(value, int):
        return value // size
    assert isinstance(value, list)
    n = len(value) // size
    return value[rank * n : (rank + 1) * n]
