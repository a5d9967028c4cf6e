"""Which examples are left out before training, as a configuration. Imports no torch."""

from typing import Literal

from pydantic import PositiveInt

from clearhead.config import Config


class Preparation(Config):
    """How examples are filtered before training. Empty ones are always dropped. Every count is reported."""

    max_length: PositiveInt | None = 256
    """Most tokens a side, without <bos> and <eos>; None for no limit."""
    too_long: Literal["drop", "cut"] = "drop"
    """For training examples; long examples of the other splits are always cut."""
    remove_duplicates: bool = False
    """Keep the first of equal training examples."""
    remove_overlap: bool = False
    """Leave out training examples whose source is also in validation or test."""
