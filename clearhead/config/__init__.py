"""Every architecture as data: frozen, validated types that describe a network. Imports no torch.

A `ModelConfig` is one or two `StackConfig`s and a head. Encoder-decoder, encoder-only, decoder-only and image models
differ only in which of these are present and in the values of their fields. Heads, inputs and positions are each named
in one file.
"""

from clearhead.config import heads, inputs, mixers, pictures, positions, scaling
from clearhead.config.base import Config, Probability, Share
from clearhead.config.experts import Clamp, Experts
from clearhead.config.heads import *
from clearhead.config.inputs import *
from clearhead.config.mechanism import Mechanism, NormConfig
from clearhead.config.mixers import *
from clearhead.config.network import Init, ModelConfig, StackName
from clearhead.config.pictures import *
from clearhead.config.positions import *
from clearhead.config.scaling import *
from clearhead.config.stack import Latent, Multipliers, StackConfig

__all__ = [
    "Clamp",
    "Config",
    "Experts",
    "Init",
    "Latent",
    "Mechanism",
    "ModelConfig",
    "Multipliers",
    "NormConfig",
    "Probability",
    "Share",
    "StackConfig",
    "StackName",
]
__all__ += heads.__all__ + inputs.__all__ + mixers.__all__ + pictures.__all__ + positions.__all__ + scaling.__all__
