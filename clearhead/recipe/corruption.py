"""How texts are corrupted for an encoder-decoder to restore, as configurations. Imports no torch."""

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat

from clearhead.config import Config, Share


class Spans(Config):
    """Spans become sentinels, and the decoder writes what was there (Raffel et al. 2020, 3.1.4)."""

    kind: Literal["spans"] = "spans"
    share: Share = 0.15
    """Share of the tokens that are in spans."""
    mean_length: PositiveFloat = 3.0
    """Mean tokens of a span."""


class Infilling(Config):
    """Spans become one mask token each, sentences change places; the decoder writes the text (Lewis et al. 2020)."""

    kind: Literal["infilling"] = "infilling"
    share: Share = 0.3
    """Share of the tokens that are in spans."""
    mean_length: PositiveFloat = 3.0
    """Mean of the Poisson distribution of a span's tokens."""
    permute_sentences: bool = True


Corruption = Annotated[Spans | Infilling, Field(discriminator="kind")]
