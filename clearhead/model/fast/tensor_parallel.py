"""Tells how the weights of a part divide among processes, by axis, for tensor parallelism."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from clearhead.config import StackConfig

Axis = Literal["heads", "units"]


@dataclass(frozen=True)
class Division:
    """A child or attribute of a part whose heads or feed-forward units are divided among processes."""

    name: str
    axis: Axis
    along: Literal["outputs", "inputs", "states", "whole"] | None = None
    """outputs: each process makes its share of the result; inputs: it reads its share, and the results add up; states:
    the module treats each head by itself, and its weights stay whole; whole: it needs all heads at once, so that no
    network with it can be divided. None: a plain number or list, which is cut."""


def divisions_of(module: nn.Module) -> tuple[Division, ...]:
    """The shares that a part declares; empty if every process computes the whole part."""
    return getattr(module, "divisions", ())


def undivided(stack: nn.Module) -> list[str]:
    """The names of the stack's parts that cannot be divided among processes."""
    parts = [(module, part) for module in stack.modules() for part in divisions_of(module) if part.along == "whole"]
    return [part.name for module, part in parts if getattr(module, part.name) is not None]


def cut(value: object, rank: int, size: int) -> object:
    """This process's share of a count, or of a list with one entry for each head."""
    if isinstance(value, int):
        return value // size
    assert isinstance(value, list)
    n = len(value) // size
    return value[rank * n : (rank + 1) * n]


def counts(config: StackConfig) -> dict[Axis, dict[str, int]]:
    """The counts of each axis of a stack, by the fields of its config."""
    units, experts = {"d_ff": config.d_ff}, config.experts
    if experts is not None:
        units |= {"experts.d_ff": experts.d_ff or config.d_ff}
        units |= {"experts.shared": experts.shared} if experts.shared else {}
    return {"heads": {"n_heads": config.n_heads, "n_kv_heads": config.kv_heads}, "units": units}


def uneven(stack: nn.Module, config: StackConfig, ranks: int) -> dict[str, int]:
    """The counts that a stack divides among processes but `ranks` does not divide evenly, by field."""
    axes = {part.axis for module in stack.modules() for part in divisions_of(module)}
    found = {field: n for axis, fields in counts(config).items() if axis in axes for field, n in fields.items()}
    return {field: n for field, n in found.items() if n % ranks}


def share(config: StackConfig, ranks: int) -> StackConfig:
    """The stack that one of `ranks` processes computes."""
    shares = {field: n // ranks for fields in counts(config).values() for field, n in fields.items()}
    own = {field: n for field, n in shares.items() if "." not in field}
    if config.experts is not None:
        inside = {field.partition(".")[2]: n for field, n in shares.items() if "." in field}
        own |= {"experts": config.experts.model_copy(update=inside)}
    return config.model_copy(update={"d_head": config.head_width, **own})
