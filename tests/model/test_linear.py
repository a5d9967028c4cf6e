"""Linear maps that stand where others stood."""

import torch
from torch import Tensor, nn

from clearhead.model.linear import LinearMap, effective_weight, is_plain, replace, shared_copy
from tests.model import small
from tests.model.small import ids


class Scaled(LinearMap):
    """2 x W^T."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear.in_features, linear.out_features, bias=None)
        self.inner = linear

    def effective_weight(self) -> Tensor:
        return 2 * self.inner.weight

    def forward(self, x: Tensor) -> Tensor:
        return 2 * nn.functional.linear(x, self.inner.weight)


def test_plain_maps_alone_are_replaced():
    network = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2), nn.Bilinear(1, 1, 1))
    network[0].register_forward_hook(lambda _, __, y: y + 1)
    kept = network[2]
    assert isinstance(kept, nn.Linear)
    replace(network, lambda linear: Scaled(linear) if linear.out_features == 3 else None)
    assert [is_plain(module) for module in network] == [False, False, True, False]
    assert isinstance(network[0], nn.Linear)
    assert isinstance(network[1], Scaled)
    assert network[2] is kept
    assert torch.equal(effective_weight(network[1]), 2 * network[1].inner.weight)
    assert effective_weight(kept) is kept.weight


def test_a_shared_copy_is_the_network_with_other_parts():
    network = small.decoder()
    up = network.get_submodule("decoder.blocks.0.ffn.up")
    assert isinstance(up, nn.Linear)
    new = nn.Linear(up.in_features, up.out_features)
    copied = shared_copy(network, {up: new})
    assert copied.get_submodule("decoder.blocks.0.ffn.up") is new
    assert network.get_submodule("decoder.blocks.0.ffn.up") is up
    own = dict(network.named_parameters())
    changed = [name for name, parameter in copied.named_parameters() if own[name] is not parameter]
    assert changed == ["decoder.blocks.0.ffn.up.weight", "decoder.blocks.0.ffn.up.bias"]
    with torch.no_grad():
        new.load_state_dict(up.state_dict())
        assert torch.equal(copied(ids(1, 4)), network(ids(1, 4)))
    assert copied.train(mode=not network.training).training != network.training
