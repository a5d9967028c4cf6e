from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearhead.model import Transformer, attention
from clearhead.model.fast import activation_checkpointing as module
from clearhead.model.fast import blocked_attention
from clearhead.model.fast.activation_checkpointing import selective_checkpointing
from tests.model import small

IDS = torch.arange(12).view(2, 6)


@pytest.fixture
def unpacked(monkeypatch) -> list[Any]:
    """What the backward pass takes back."""
    seen, unpack = list[Any](), module._unpack
    monkeypatch.setattr(module, "_unpack", lambda kept: (seen.append(kept), unpack(kept))[1])
    return seen


def gradients(network: Transformer, *, is_on: bool, mixed: bool = False) -> dict[str, Tensor]:
    with torch.autocast("cpu", torch.bfloat16, enabled=mixed), selective_checkpointing(is_on):
        loss = network(*[IDS] * len(network.stacks()), labels=IDS.flatten())
    return small.gradients(network, loss)


def assert_equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    """To the bit."""
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_each_matrix_is_copied_again_and_gradients_are_the_same_to_the_bit(unpacked: list[Any]):
    network = small.encoder_decoder().train()
    assert_equal(*(gradients(network, is_on=is_on, mixed=True) for is_on in (False, True)))
    again = [kept.weight.tensor.data_ptr() for kept in unpacked if isinstance(kept, module._Copied)]
    assert sorted(again) == sorted({m.weight.data_ptr() for m in network.modules() if isinstance(m, nn.Linear)})


@pytest.mark.parametrize("mixed", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    "changes", [{"activation": "gelu"}, {"activation": "gelu_tanh"}, {"activation": "silu", "gated": True}]
)
def test_activations_are_computed_again_and_gradients_are_the_same_to_the_bit(
    changes: dict[str, Any], mixed: bool, unpacked: list[Any]
):
    network = small.decoder(**changes).train()
    assert_equal(*(gradients(network, is_on=is_on, mixed=mixed) for is_on in (False, True)))
    assert sum(isinstance(kept, module._Activated) for kept in unpacked) == 2


def test_inside_a_checkpointed_block_nothing_is_computed_a_third_time(monkeypatch):
    network, found = small.decoder(activation="gelu").train(), list[dict[str, Tensor]]()
    monkeypatch.setattr(blocked_attention, "TILE", 2)
    monkeypatch.setattr(attention, "TILE", 2)
    for network.last_stack.recompute in (False, True):
        found.append(gradients(network, is_on=True))
    assert_equal(*found)


def test_the_cache_of_autocast_is_on_again():
    with torch.autocast("cpu", torch.bfloat16):
        with selective_checkpointing(True):
            assert not torch.is_autocast_cache_enabled()
        assert torch.is_autocast_cache_enabled()


def test_a_value_that_was_written_to_is_kept_as_it_was_used():
    network = small.decoder(activation="gelu").train()

    def halve(_: nn.Module, args: tuple[Tensor]) -> None:
        with torch.no_grad():
            args[0].mul_(0.5)

    network.get_submodule("decoder.blocks.0.ffn.down").register_forward_pre_hook(halve)
    found = [gradients(network, is_on=is_on)["decoder.blocks.0.ffn.down.weight"] for is_on in (False, True)]
    assert torch.equal(*found)


def test_a_weight_that_is_written_to_before_the_backward_pass_is_an_error():
    network = small.encoder_decoder().train()
    for is_on in (False, True):
        with selective_checkpointing(is_on), torch.autocast("cpu", torch.bfloat16) if is_on else nullcontext():
            loss = network(IDS, IDS, labels=IDS.flatten())
        with torch.no_grad():
            network.get_parameter("decoder.blocks.1.ffn.down.weight").mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


class Counting(nn.Module):
    """A part whose code does something else each time."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.n = inner, 0

    def forward(self, x: Tensor) -> Tensor:
        self.n += 1
        return self.inner(x) * self.n


def test_a_block_with_code_of_anothers_is_not_computed_again():
    found = list[dict[str, Tensor]]()
    for again in (False, True):
        network = small.decoder().train()
        block: nn.Module = network.get_submodule("decoder.blocks.0")
        block.ffn = counting = Counting(network.get_submodule("decoder.blocks.0.ffn"))
        network.last_stack.recompute = again
        found.append(gradients(network, is_on=False))
        assert counting.n == 1
    assert_equal(*found)
