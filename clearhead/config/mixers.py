"""What mixes the positions of a layer in place of attention, and keeps a state of fixed size."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt

from clearhead.config.mechanism import Kinds, Mechanism

__all__ = ["MixerConfig", "ShortConvolution"]


class MixerConfig(Mechanism):
    """A mixer of positions, which builds its `clearhead.model.mixers.mixer.Mixer` from itself and a stack's config."""

    layers: tuple[NonNegativeInt, ...] | None = None
    """Numbers of the layers that have it, from 0, in ascending order; None for all, () for none. The others have
    attention."""


class ShortConvolution(MixerConfig):
    """Each component reads its own last few values, between two gates (Liquid AI 2025, LFM2)."""

    builds = "clearhead.model.mixers.gated_convolution:GatedConvolution"
    kind: Literal["short_convolution"] = "short_convolution"
    width: Annotated[int, Field(ge=2, le=64)] = 3
    """Positions that the convolution reads, its own among them. The state holds one less."""
    bias: bool = False
    """Bias of the linear maps and of the convolution."""


Mixer = Annotated[ShortConvolution | MixerConfig, Kinds(ShortConvolution, MixerConfig)]
