from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearhead import config as c
from clearhead.model import Transformer, attention
from clearhead.model.fast import activation_checkpointing as module
from clearhead.model.fast import blocked_attention
from clearhead.model.fast.activation_checkpointing import selective_checkpointing
from tests.model import small


def network() -> Transformer:
    torch.manual_seed(0)
    stack = c.StackConfig(d_model=32, n_layers=2, n_heads=2, d_ff=64, input=c.TokenInput(vocab_size=50))
    return Transformer(c.ModelConfig(encoder=stack, decoder=stack))


def gradients(some: Transformer, *, twice: bool) -> list[Tensor | None]:
    some.zero_grad()
    ids = torch.arange(24).view(2, 12)
    with torch.autocast("cpu", torch.bfloat16), selective_checkpointing(twice):
        loss = some(ids, ids, labels=ids.flatten())
    loss.backward()
    return [p.grad for p in some.parameters()]


def test_each_matrix_is_copied_again_and_gradients_are_the_same_to_the_bit(monkeypatch: pytest.MonkeyPatch):
    some, again = network(), list[int]()
    once = gradients(some, twice=False)
    unpack = module._unpack

    def counted(kept: module._Kept | module._Copied) -> Tensor:
        if isinstance(kept, module._Copied):
            again.append(kept.weight.tensor.data_ptr())
        return unpack(kept)

    monkeypatch.setattr(module, "_unpack", counted)
    twice = gradients(some, twice=True)
    matrices = {m.weight.data_ptr() for m in some.modules() if isinstance(m, nn.Linear)}
    assert sorted(again) == sorted(matrices)
    assert all(a is not None and b is not None and torch.equal(a, b) for a, b in zip(once, twice, strict=True))


@pytest.mark.parametrize("mixed", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    "changes", [{"activation": "gelu"}, {"activation": "gelu_tanh"}, {"activation": "silu", "gated": True}]
)
def test_activations_are_computed_again_and_gradients_are_the_same_to_the_bit(
    changes: dict[str, Any], mixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    some, ids = small.decoder(n_layers=2, **changes).train(), torch.arange(12).view(2, 6)
    again, unpack, found = list[Any](), module._unpack, list[list[Tensor]]()
    monkeypatch.setattr(
        module,
        "_unpack",
        lambda kept: (again.append(kept) if isinstance(kept, module._Activated) else None, unpack(kept))[1],
    )
    for is_on in (False, True):
        some.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed), selective_checkpointing(is_on):
            loss = some(ids, labels=ids.flatten())
        loss.backward()
        found.append([p.grad.clone() for p in some.parameters() if p.grad is not None])
    assert len(again) == 2
    assert all(map(torch.equal, *found))


def test_inside_a_checkpointed_block_nothing_is_computed_a_third_time(monkeypatch: pytest.MonkeyPatch) -> None:
    some, ids, found = small.decoder(n_layers=2, activation="gelu").train(), torch.arange(12).view(2, 6), list[Any]()
    monkeypatch.setattr(blocked_attention, "TILE", 2)
    monkeypatch.setattr(attention, "TILE", 2)
    assert some.decoder is not None
    for some.decoder.recompute in (False, True):
        some.zero_grad()
        with selective_checkpointing(True):
            loss = some(ids, labels=ids.flatten())
        loss.backward()
        found.append([p.grad.clone() for p in some.parameters() if p.grad is not None])
    assert all(map(torch.equal, *found))


def test_the_cache_of_autocast_is_on_again():
    with torch.autocast("cpu", torch.bfloat16):
        with selective_checkpointing(True):
            assert not torch.is_autocast_cache_enabled()
        assert torch.is_autocast_cache_enabled()


def test_a_value_that_was_written_to_is_kept_as_it_was_used() -> None:
    some, ids = small.decoder(activation="gelu").train(), torch.arange(12).view(2, 6)

    def halve(_: nn.Module, args: tuple[Tensor]) -> None:
        with torch.no_grad():
            args[0].mul_(0.5)

    some.get_submodule("decoder.blocks.0.ffn.down").register_forward_pre_hook(halve)
    found: list[Tensor | None] = []
    for is_on in (False, True):
        some.zero_grad()
        with selective_checkpointing(is_on):
            loss = some(ids, labels=ids.flatten())
        loss.backward()
        found.append(some.get_parameter("decoder.blocks.0.ffn.down.weight").grad)
    assert found[0] is not None
    assert found[1] is not None
    assert torch.equal(found[0], found[1])


def test_a_weight_that_is_written_to_before_the_backward_pass_is_an_error() -> None:
    some, ids = network(), torch.arange(24).view(2, 12)
    for is_on in (False, True):
        with selective_checkpointing(is_on), torch.autocast("cpu", torch.bfloat16) if is_on else nullcontext():
            loss = some(ids, ids, labels=ids.flatten())
        with torch.no_grad():
            some.get_parameter("decoder.blocks.1.ffn.down.weight").mul_(2)
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


def test_a_block_with_code_of_anothers_is_not_computed_again() -> None:
    found: list[list[Tensor | None]] = []
    for again in (False, True):
        some, ids = small.decoder().train(), torch.arange(12).view(2, 6)
        block: nn.Module = some.get_submodule("decoder.blocks.0")
        counting = Counting(some.get_submodule("decoder.blocks.0.ffn"))
        block.ffn = counting
        some.get_submodule("decoder").recompute = again  # pyrefly: ignore
        some(ids, labels=ids.flatten()).backward()
        assert counting.n == 1
        found.append([p.grad for p in some.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True) if a is not None and b is not None)
