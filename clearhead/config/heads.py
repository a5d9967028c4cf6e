"""The heads of a network, as data."""

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, model_validator

from clearhead.config.base import Config, Count, Probability, Width

__all__ = ["ClassificationHead", "Head", "LanguageHead", "NoHead", "SpanHead", "TaggingHead", "VectorHead"]

ProblemType = Literal["single_label_classification", "multi_label_classification", "regression"]


class LanguageHead(Config):
    """Logits over the vocabulary for each position."""

    kind: Literal["language"] = "language"
    tied: bool = True
    """Use the token table as the output matrix (Press and Wolf 2017)."""
    bias: bool = False
    transform: bool = False
    """A dense layer, activation and norm before the output matrix (Devlin et al. 2018, masked LM)."""
    transform_bias: bool = True
    """Bias in that dense layer."""
    transform_alone: bool = False
    """That dense layer without the activation and the norm."""
    width: Width | None = None
    """Width of what that layer makes; default that of the token table."""
    scale: PositiveFloat | None = None
    """Factor on the states before the output matrix; None for 1."""
    soft_cap: PositiveFloat | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.width is not None and (self.tied or not self.transform):
            raise ValueError(f"width={self.width} needs transform=True and tied=False, a matrix of its own")
        return self


class ClassificationHead(Config):
    """Logits of n_labels classes for the whole sequence or image."""

    kind: Literal["classification"] = "classification"
    n_labels: Count
    labels: tuple[str, ...] = ()
    """Names of the classes, not necessarily different. Empty if the classes have only numbers."""
    pool: Literal["first", "last", "mean", "first_and_mean"] = "first"
    """The state that is classified; first_and_mean joins two states to one of twice the width (Oquab et al. 2023)."""
    patches_only: bool = False
    """A mean leaves out what stands before the patches of a picture: the class token and the registers."""
    distilled: bool = False
    """A second output matrix reads the second state, and the logits are the mean of both (Touvron et al. 2020, 3)."""
    pooler: bool = False
    """A dense tanh layer between the pooled state and the classifier (Devlin et al. 2018)."""
    pooler_activation: Literal["tanh", "relu", "gelu"] = "tanh"
    """The activation of that layer, in place of tanh."""
    pools_last: bool = False
    """Pool what that layer makes of every state, in place of the states."""
    transform: bool = False
    """A dense layer, activation and norm in place of the pooler."""
    transform_bias: bool = True
    bias: bool = True
    dropout: Probability = 0.0
    """Dropout before the output matrix, the only one in the head."""
    problem_type: ProblemType | None = None
    """Whether an input has one class, any number of classes, or numbers. None means one class, or with a single label
    whether it holds."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.n_labels == 1 and self.problem_type == "single_label_classification":
            raise ValueError("problem_type='single_label_classification' needs n_labels of 2 or more, got 1")
        if self.pooler and self.transform:
            raise ValueError("pooler=True and transform=True exclude each other; choose one")
        if self.pools_last and not self.pooler:
            raise ValueError("pools_last=True needs pooler=True, the layer whose results are pooled")
        if self.patches_only and "mean" not in self.pool:
            raise ValueError(f"patches_only=True needs a pool with a mean, got {self.pool!r}")
        if (self.distilled or self.pool == "first_and_mean") and (self.pooler or self.transform):
            raise ValueError("distilled=True and pool='first_and_mean' read states: leave out pooler and transform")
        if self.distilled and self.pool != "first":
            raise ValueError(f"distilled=True needs pool='first', got {self.pool!r}")
        _check_labels(self.labels, self.n_labels)
        return self


class TaggingHead(Config):
    """Logits of n_labels classes for each position."""

    kind: Literal["tagging"] = "tagging"
    n_labels: Count
    labels: tuple[str, ...] = ()
    """Names of the classes, not necessarily different. Empty if the classes have only numbers."""
    transform: bool = False
    """A dense layer, activation and norm before the output matrix."""
    transform_bias: bool = True
    transform_norm: bool = True
    """The norm after that dense layer and activation."""
    bias: bool = True
    dropout: Probability = 0.0
    """Dropout before the output matrix, the only one in the head."""
    blank: Annotated[int, Field(ge=0, le=2**32)] | None = None
    """The label of a position that writes nothing, if the labels spell a text: those of all positions in order, each
    run of one label once (Graves et al. 2006, CTC)."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _check_labels(self.labels, self.n_labels)
        if self.blank is not None and self.blank >= self.n_labels:
            raise ValueError(f"blank={self.blank} must be less than n_labels={self.n_labels}")
        return self


class SpanHead(Config):
    """Two logits for each position: for a start and for an end of the answer there."""

    kind: Literal["span"] = "span"
    transform: bool = False
    """A dense layer, activation and norm before the output matrix."""
    transform_bias: bool = True
    bias: bool = True
    dropout: Probability = 0.0
    """Dropout before the output matrix, the only one in the head."""


class NoHead(Config):
    """No head: the network returns its last states."""

    kind: Literal["none"] = "none"
    pooler: bool = False
    """Keep a dense tanh layer that makes one vector of the first state (Devlin et al. 2018)."""


class VectorHead(Config):
    """One vector for the whole text or picture, to compare with those of another network (Radford et al. 2021)."""

    kind: Literal["vector"] = "vector"
    pool: Literal["first", "last", "attention"] = "first"
    """The state that it is made of; attention: what a learned query reads of all states, through a feed-forward layer
    (Zhai et al. 2022)."""
    norm: bool = False
    """Normalise that state."""
    width: Width | None = None
    """Width of the vector, if a linear layer makes it of that state."""
    bias: bool = False
    """Bias of that linear layer."""
    fills: bool = False
    """Texts are filled with padding tokens up to the longest length, and these count as tokens (Zhai et al. 2023)."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.bias and self.width is None:
            raise ValueError("bias=True needs width, that of the linear layer")
        return self


Head = Annotated[
    LanguageHead | ClassificationHead | TaggingHead | SpanHead | VectorHead | NoHead, Field(discriminator="kind")
]


def _check_labels(labels: tuple[str, ...], n_labels: int) -> None:
    if labels and len(labels) != n_labels:
        raise ValueError(f"labels: expected one for each of n_labels={n_labels}, got {len(labels)}")
