"""What every configuration has in common."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Config(BaseModel):
    """Base of every configuration: immutable. An unknown key is an error that names it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


Probability = Annotated[float, Field(ge=0.0, lt=1.0)]
Share = Annotated[float, Field(gt=0.0, le=1.0)]

# Bounds far above any real network, so that products of sizes do not overflow.
Width = Annotated[int, Field(gt=0, le=2**20)]
Count = Annotated[int, Field(gt=0, le=2**32)]
