"""Every architecture as data: frozen, validated types that say what a network is. Imports no torch.

A `ModelConfig` is one or two `StackConfig`s and a head. Encoder-decoder, encoder-only, decoder-only and image models
differ only in which of these are present and in the values of their fields.
"""

from clearhead.config.base import Config, Probability, Share
from clearhead.config.experts import Clamp, Experts
from clearhead.config.heads import ClassificationHead, Head, LanguageHead, NoHead, SpanHead, TaggingHead, VectorHead
from clearhead.config.inputs import Continuous, Convolution, FrameInput, PatchInput, StackInput, TokenInput, WaveInput
from clearhead.config.latent import Latent
from clearhead.config.network import Init, ModelConfig, StackName
from clearhead.config.positions import (
    ALiBi,
    DynamicScaling,
    Learned,
    LearnedGrid,
    LinearScaling,
    LongScaling,
    NoPositions,
    Positions,
    RelativeBias,
    Rotary,
    RotaryGrid,
    RotaryScaling,
    Sinusoidal,
    WavelengthScaling,
    YarnScaling,
)
from clearhead.config.stack import StackConfig

__all__ = [
    "ALiBi",
    "Clamp",
    "ClassificationHead",
    "Config",
    "Continuous",
    "Convolution",
    "DynamicScaling",
    "Experts",
    "FrameInput",
    "Head",
    "Init",
    "LanguageHead",
    "Latent",
    "Learned",
    "LearnedGrid",
    "LinearScaling",
    "LongScaling",
    "ModelConfig",
    "NoHead",
    "NoPositions",
    "PatchInput",
    "Positions",
    "Probability",
    "RelativeBias",
    "Rotary",
    "RotaryGrid",
    "RotaryScaling",
    "Share",
    "Sinusoidal",
    "SpanHead",
    "StackConfig",
    "StackInput",
    "StackName",
    "TaggingHead",
    "TokenInput",
    "VectorHead",
    "WaveInput",
    "WavelengthScaling",
    "YarnScaling",
]
