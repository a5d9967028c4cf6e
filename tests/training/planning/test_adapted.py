"""What a run with adapters holds: the sizes of the real network."""

import pytest

from clearhead.config.adapter import AdapterConfig
from clearhead.model import Transformer
from clearhead.model.adapter import adapt
from clearhead.recipe.training import AdamW, Muon
from clearhead.training.planning.memory import Network, Setting, Shape, adapted_sizes, memory_of
from tests.model.small import decoder


@pytest.mark.parametrize("bits", [None, 8, 4])
def test_sizes_are_those_of_the_network(bits) -> None:
    adapter = AdapterConfig(rank=2, bits=bits)
    network = decoder()
    config = network.config
    tensors = [*adapt(Transformer(config), adapter).parameters(), *adapt(Transformer(config), adapter).buffers()]
    n_bytes, n_trained = adapted_sizes(config, adapter)
    assert n_bytes == sum(tensor.nbytes for tensor in tensors if tensor.is_floating_point() or bits)
    assert n_trained == sum(tensor.numel() for tensor in tensors if tensor.requires_grad)
    for optimizer in (AdamW(), Muon()):
        full, small = (
            memory_of(Network(config), Shape(2, target=8), setting, optimizer=optimizer, ema=True)
            for setting in (Setting(), Setting(adapter=adapter))
        )
        assert small.weights == n_bytes
        assert (small.gradients, small.optimizer, small.mean, small.update) == (
            4 * n_trained,
            8 * n_trained,
            4 * n_trained,
            0,
        )
        assert small.total < full.total
