"""trace.json: the description of a recording."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from clearhead.config import Config, ModelConfig, StackName
from clearhead.json_text import JsonObject
from clearhead.model.ops import Mask, Op

FORMAT: Literal["clearhead-trace/1"] = "clearhead-trace/1"

AxisLength = Annotated[int, Field(gt=0, le=2**32)]


class Token(Config):
    """One position of what a stack reads."""

    id: NonNegativeInt
    text: str
    """The token as people read it."""
    span: tuple[NonNegativeInt, NonNegativeInt] | None = None
    """Characters of the text, [start, end); None for a mark."""
    type: NonNegativeInt = 0


class Edited(Config):
    """An edit that was made. For a function or a tensor, only the recorded values show the result."""

    at: str
    do: Literal["set", "close", "zero", "mean", "scale", "patch", "tensor", "function"]
    """close: to -inf, as a mask does; mean: over the last axis, or over the positions if the explorer made the edit."""
    value: float | tuple[float, ...] | None = None


class TensorFact(Config):
    """A stored tensor: its lengths and the letters of its axes (docs/glossary.md)."""

    shape: tuple[AxisLength, ...]
    axes: str
    by_hand: bool = False
    """Whether an edit made it, instead of its op."""
    closed: bool = False
    """Some cells are -inf; a second tensor marks them."""


class RecomputeCheck(Config):
    """The largest differences after evaluating every op again."""

    recompute_max_abs: NonNegativeFloat
    recompute_max_relative: NonNegativeFloat
    """Shares of the largest number of the tensor."""
    rows_sum_max_error: NonNegativeFloat
    """The largest difference of a sum of attention weights from 1."""


class TraceManifest(Config):
    """All of trace.json."""

    format: Literal["clearhead-trace/1"]
    family: str | None = None
    config: ModelConfig
    tokens: dict[StackName, tuple[Token, ...]]
    """The tokens by stack. For an image: the class token, then each patch by its row and column."""
    masks: dict[str, Mask]
    edits: tuple[Edited, ...] = ()
    tensors: dict[str, TensorFact]
    ops: tuple[Op, ...]
    check: RecomputeCheck | None = None

    @property
    def by_hand(self) -> frozenset[str]:
        """The addresses of values that an edit made."""
        return frozenset(address for address, fact in self.tensors.items() if fact.by_hand)

    def to_document(self) -> JsonObject:
        """The manifest as JSON; an op leaves out its defaults."""
        document = self.model_dump(mode="json")
        document["ops"] = [op.model_dump(mode="json", exclude_defaults=True) for op in self.ops]
        return document
