"""Changes of rotary angles for texts longer than those of training, as data."""

from math import log
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, model_validator

from clearhead.config.base import Config, Count

__all__ = ["DynamicScaling", "LinearScaling", "LongScaling", "RotaryScaling", "WavelengthScaling", "YarnScaling"]


class LinearScaling(Config):
    """Rotary angles divided by `factor`: position interpolation (Chen et al. 2023)."""

    kind: Literal["linear"] = "linear"
    factor: PositiveFloat


class WavelengthScaling(Config):
    """Long wavelengths divided by `factor`, short ones kept, a linear blend between them."""

    kind: Literal["wavelength"] = "wavelength"
    factor: PositiveFloat
    low_factor: PositiveFloat = 1.0
    high_factor: PositiveFloat = 4.0
    original_length: Count

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low_factor >= self.high_factor:
            raise ValueError(f"low_factor={self.low_factor} must be less than high_factor={self.high_factor}")
        return self


class YarnScaling(Config):
    """Interpolation by frequency with a ramp, and a temperature on the scores (Peng et al. 2023, YaRN)."""

    kind: Literal["yarn"] = "yarn"
    factor: PositiveFloat
    original_length: Count
    beta_fast: PositiveFloat = 32.0
    beta_slow: PositiveFloat = 1.0
    attention_factor: PositiveFloat | None = None
    """Factor on rotated queries and on rotated keys; default 0.1 ln(factor) + 1."""
    truncate: bool = True
    """Begin and end the ramp at whole components."""

    @property
    def magnitude(self) -> float:
        """`attention_factor`, by default the paper's (3.4)."""
        return self.attention_factor or 0.1 * log(max(self.factor, 1.0)) + 1.0


Divisors = Annotated[tuple[PositiveFloat, ...], Field(min_length=1, max_length=2**16)]


class LongScaling(Config):
    """Each angle divided by its own number (Ding et al. 2024, LongRoPE).

    Texts longer than `original_length` need other divisors, with which shorter texts would change, and are refused.
    """

    kind: Literal["long"] = "long"
    divisors: Divisors
    """One for each pair of rotated components, for texts of up to `original_length`."""
    original_length: Count
    longer: Divisors | None = None
    """The divisors for longer texts, for other libraries."""
    attention_factor: PositiveFloat = 1.0
    """Factor on rotated queries and on rotated keys."""


class DynamicScaling(Config):
    """Angles as they are up to `original_length`. Longer texts would need another base for all angles, and are refused.

    The base grows with the length of a text (Peng et al. 2023, 3.3).
    """

    kind: Literal["dynamic"] = "dynamic"
    factor: PositiveFloat
    original_length: Count


RotaryScaling = Annotated[
    LinearScaling | WavelengthScaling | YarnScaling | LongScaling | DynamicScaling, Field(discriminator="kind")
]
