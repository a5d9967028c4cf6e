"""What a network says at the end, as data."""

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from clearhead.config.base import Config


class LanguageHead(Config):
    """Logits over the vocabulary for each position."""

    kind: Literal["language"] = "language"
    tied: bool = True
    """Use the token table as the output matrix (Press and Wolf 2017)."""
    bias: bool = False
    transform: bool = False
    """A dense layer, activation and norm before the output matrix (Devlin et al. 2018, masked LM)."""
    scale: PositiveFloat | None = None
    """Factor on the states before the output matrix; None for 1."""
    soft_cap: PositiveFloat | None = None


class ClassificationHead(Config):
    """Logits of n_labels classes for the whole sequence or image."""

    kind: Literal["classification"] = "classification"
    n_labels: PositiveInt
    pool: Literal["first", "last", "mean"] = "first"
    pooler: bool = False
    """A dense tanh layer between the pooled state and the classifier (Devlin et al. 2018)."""


class TaggingHead(Config):
    """Logits of n_labels classes for each position."""

    kind: Literal["tagging"] = "tagging"
    n_labels: PositiveInt


class SpanHead(Config):
    """Two logits for each position: the answer starts here, ends here."""

    kind: Literal["span"] = "span"


class NoHead(Config):
    """The last states themselves."""

    kind: Literal["none"] = "none"


Head = Annotated[LanguageHead | ClassificationHead | TaggingHead | SpanHead | NoHead, Field(discriminator="kind")]
