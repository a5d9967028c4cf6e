"""The sizes of a network with adapters, which alone are trained, built without memory."""

from functools import cache

from clearhead.config import ModelConfig
from clearhead.config.adapter import AdapterConfig
from clearhead.model.adapter import adapt
from clearhead.model.meta import unallocated


@cache
def adapted_sizes(config: ModelConfig, adapter: AdapterConfig) -> tuple[int, int]:
    """The bytes of all weights in float32 or as they are rounded, and the number of weights that are trained."""
    network = adapt(unallocated(config), adapter)
    tensors = [*network.parameters(), *network.buffers()]
    return sum(t.nbytes for t in tensors), sum(t.numel() for t in tensors if t.requires_grad)
