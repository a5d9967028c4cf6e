"""What mixes the positions of a layer in place of attention, and keeps a state of fixed size."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, model_validator

from clearhead.config.base import Width
from clearhead.config.mechanism import Kinds, Mechanism
from clearhead.extensions import load_extension

__all__ = ["GatedDelta", "MixerConfig", "SelectiveScan", "ShortConvolution", "StateSpace", "TimeMixing"]

Window = Annotated[int, Field(ge=2, le=64)]


class MixerConfig(Mechanism):
    """A mixer of positions, which builds its `clearhead.model.mixers.mixer.Mixer` from itself and a stack's config."""

    builds_ffn: ClassVar[str] = "clearhead.model.feedforward:FeedForward"
    """The module of the feed-forward parts of its stack, whose config builds them."""
    layers: tuple[NonNegativeInt, ...] | None = None
    """Numbers of the layers that have it, from 0, in ascending order; None for all, () for none. The others have
    attention."""
    beside: bool = False
    """Those layers have attention too. It reads the same normalised state, and both results are added."""

    def build_ffn(self, stack: Any) -> Any:
        """A feed-forward part of its stack."""
        return load_extension("mechanisms", self.kind, self.builds_ffn)(stack)


class ShortConvolution(MixerConfig):
    """Each component reads its own last few values, between two gates (Liquid AI 2025, LFM2)."""

    builds = "clearhead.model.mixers.gated_convolution:GatedConvolution"
    kind: Literal["short_convolution"] = "short_convolution"
    width: Window = 3
    """Positions that the convolution reads, its own among them. The state holds one less."""
    bias: bool = False
    """Bias of the linear maps and of the convolution."""


class StateSpace(MixerConfig):
    """Each head keeps a matrix that decays, and adds to it and reads from it at each position (Dao and Gu 2024)."""

    builds = "clearhead.model.mixers.state_space:SelectiveStateSpace"
    kind: Literal["state_space"] = "state_space"
    n_heads: Width
    d_head: Width = 64
    d_state: Width = 128
    """Numbers of the state for each component of a head."""
    n_groups: Width = 1
    """Groups of heads. The heads of a group write and read at the same places of their states."""
    width: Window = 4
    """Positions that the convolutions before the state read. The cache holds one less."""
    conv_bias: bool = True
    norm: Literal["gated", "before_gate"] | None = "gated"
    """What the norm before the last map reads: y * silu(gate), or y, which is then multiplied by silu(gate)."""
    factors: tuple[float, float, float, float, float] | None = None
    """Constant factors on the gate, x, b, c and the step, as their maps make them (Yang et al. 2022); None for 1."""
    least_step: NonNegativeFloat = 0.0
    """Limits of the step, which scales what a position writes and how much the state decays."""
    most_step: PositiveFloat | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.n_heads % self.n_groups:
            raise ValueError(f"n_groups={self.n_groups} must divide n_heads={self.n_heads}")
        if self.most_step is not None and self.least_step > self.most_step:
            raise ValueError(f"least_step={self.least_step} must be at most most_step={self.most_step}")
        return self


class SelectiveScan(MixerConfig):
    """Each channel keeps numbers that decay at rates of their own (Gu and Dao 2023, Mamba)."""

    builds = "clearhead.model.mixers.selective_scan:ChannelStates"
    kind: Literal["selective_scan"] = "selective_scan"
    d_inner: Width
    """Channels."""
    d_state: Width = 16
    """Numbers of the state for each channel."""
    rank: Width
    """Width of the vector from which the steps of all channels are computed."""
    width: Window = 4
    """Positions that the convolution before the state reads. The cache holds one less."""
    conv_bias: bool = True
    norms: Literal["weight", "none"] | None = None
    """RMSNorms of the step's vector, of b and of c, with weights or without; None for no norms."""
    norms_eps: PositiveFloat = 1e-6


class GatedDelta(MixerConfig):
    """The gated delta rule: a matrix of keys and values for each head, which forgets, and which each position corrects
    (Yang et al. 2025, Gated DeltaNet).
    """

    builds = "clearhead.model.mixers.delta:GatedDeltaRule"
    kind: Literal["gated_delta"] = "gated_delta"
    n_heads: Width
    """Heads of values."""
    n_key_heads: Width | None = None
    """Heads of queries and keys, each for several heads of values; default n_heads."""
    d_key: Width = 128
    """Width of a head's queries and keys."""
    d_value: Width = 128
    width: Window = 4
    """Positions that the convolutions before the state read."""

    @property
    def key_heads(self) -> int:
        return self.n_key_heads or self.n_heads

    @model_validator(mode="after")
    def _grouped(self) -> Self:
        if self.n_heads % self.key_heads:
            raise ValueError(f"n_key_heads={self.n_key_heads} must divide n_heads={self.n_heads}")
        return self


class TimeMixing(MixerConfig):
    """Each channel reads a mean of all values, weighed by their keys and ages (Peng et al. 2023, RWKV).

    The feed-forward parts of the stack are the paper's channel mixing: they read the position before too.
    """

    builds = "clearhead.model.mixers.time_mixing:AgeingMean"
    builds_ffn = "clearhead.model.mixers.time_mixing:ChannelMixing"
    kind: Literal["time_mixing"] = "time_mixing"
    d_inner: Width | None = None
    """Channels; default d_model."""


Kind = ShortConvolution | StateSpace | SelectiveScan | GatedDelta | TimeMixing
Own = Annotated[Kind, Field(discriminator="kind")]
Mixer = Annotated[Kind | MixerConfig, Kinds(Own, MixerConfig)]
