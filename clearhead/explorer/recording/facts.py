"""What a recording says of its tokens and values."""

from typing import Annotated

from pydantic import Field, NonNegativeFloat, NonNegativeInt
from torch import Tensor

from clearhead.config import Config
from clearhead.errors import UserError

AxisLength = Annotated[int, Field(gt=0, le=2**32)]


class Token(Config):
    """One position of what a stack reads."""

    id: NonNegativeInt
    text: str
    """The token as people read it."""
    span: tuple[NonNegativeInt, NonNegativeInt] | None = None
    """Characters of the text, [start, end); None for a mark."""
    type: NonNegativeInt = 0


class TensorFact(Config):
    """A value: its lengths and the letters of its axes (docs/glossary.md)."""

    shape: tuple[AxisLength, ...]
    axes: str
    by_hand: bool = False
    """Whether an edit made it, instead of its op."""


class RecomputeCheck(Config):
    """The largest differences after evaluating every op again."""

    recompute_max_abs: NonNegativeFloat
    recompute_max_relative: NonNegativeFloat
    """Shares of the largest number of the tensor."""
    rows_sum_max_error: NonNegativeFloat
    """The largest difference of a sum of attention weights from 1."""


def check_finite(address: str, value: Tensor) -> None:
    """Raises UserError for a number that is not finite, except for -inf, with which an edit closes a cell."""
    # A finite sum proves that all of them are finite.
    if not bool(value.sum().isfinite()) and not bool((value.isfinite() | value.isneginf()).all()):
        raise UserError(f"{address}: expected finite numbers, got NaN or infinity; try another edit")
