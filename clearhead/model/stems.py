"""The embedding for each kind of input."""

from clearhead.config import PatchInput, StackConfig, TokenInput, WaveInput
from clearhead.model.embedding import Embedding, FrameEmbedding, PatchEmbedding, TokenEmbedding
from clearhead.model.waves import WaveEmbedding


def build_embedding(config: StackConfig) -> Embedding:
    """The embedding for the input of a stack."""
    if isinstance(config.input, TokenInput):
        return TokenEmbedding(config, config.input)
    if isinstance(config.input, PatchInput):
        return PatchEmbedding(config, config.input)
    if isinstance(config.input, WaveInput):
        return WaveEmbedding(config, config.input)
    return FrameEmbedding(config, config.input)
