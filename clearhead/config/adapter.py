"""Low-rank adapters of a network, as data."""

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from clearhead.config.base import Config, Probability

Bits = Literal[4, 8]


class AdapterConfig(Config):
    """Small matrices beside those of a checkpoint. Only they and the head of the task are trained."""

    kind: Literal["lora", "dora"] = "lora"
    """lora: a change of low rank (Hu et al. 2021). dora: also the length of each output's weights (Liu et al. 2024)."""
    rank: PositiveInt = 8
    alpha: PositiveFloat = 16.0
    """The change is multiplied by alpha / rank."""
    dropout: Probability = 0.0
    """Dropout of what the change reads."""
    targets: Annotated[tuple[str, ...], Field(min_length=1)] = ("all",)
    """The matrices with adapters: `attention`, `feedforward`, `all`, or patterns of addresses such as
    `decoder.blocks.*.cross.q`; a pattern may leave out the beginning of an address, as `attn.v` and `v` do."""
    rslora: bool = False
    """Multiply by alpha / sqrt(rank) instead, which suits large ranks (Kalajdzievski 2023)."""
    bits: Bits | None = None
    """Round the matrices below the adapters to 8 or 4 bits (Dettmers et al. 2023)."""
