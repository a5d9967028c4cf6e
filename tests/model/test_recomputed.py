from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearhead import config as c
from clearhead.model import Transformer, attention, tiles
from clearhead.model import recomputed as module
from clearhead.model.recomputed import recomputed
from tests.model import small


def network() -> Transformer:
    torch.manual_seed(0)
    stack = c.StackConfig(d_model=32, n_layers=2, n_heads=2, d_ff=64, input=c.TokenInput(vocab_size=50))
    return Transformer(c.ModelConfig(encoder=stack, decoder=stack))


def gradients(some: Transformer, *, twice: bool) -> list[Tensor | None]:
    some.zero_grad()
    ids = torch.arange(24).view(2, 12)
    with torch.autocast("cpu", torch.bfloat16), recomputed(twice):
        loss = some(ids, ids, labels=ids.flatten())
    loss.backward()
    return [p.grad for p in some.parameters()]


def test_each_matrix_is_copied_again_and_gradients_are_the_same_to_the_bit(monkeypatch: pytest.MonkeyPatch):
    some, again = network(), list[int]()
    once = gradients(some, twice=False)
    unpack = module._unpack

    def counted(kept: Tensor | module._Copied) -> Tensor:
        if isinstance(kept, module._Copied):
            again.append(kept.weight.data_ptr())
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
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed), recomputed(is_on):
            loss = some(ids, labels=ids.flatten())
        loss.backward()
        found.append([p.grad.clone() for p in some.parameters() if p.grad is not None])
    assert len(again) == 2
    assert all(map(torch.equal, *found))


def test_inside_a_checkpointed_block_nothing_is_computed_a_third_time(monkeypatch: pytest.MonkeyPatch) -> None:
    some, ids, found = small.decoder(n_layers=2, activation="gelu").train(), torch.arange(12).view(2, 6), list[Any]()
    monkeypatch.setattr(tiles, "TILE", 2)
    monkeypatch.setattr(attention, "TILE", 2)
    assert some.decoder is not None
    for some.decoder.recompute in (False, True):
        some.zero_grad()
        with recomputed(True):
            loss = some(ids, labels=ids.flatten())
        loss.backward()
        found.append([p.grad.clone() for p in some.parameters() if p.grad is not None])
    assert all(map(torch.equal, *found))


def test_the_cache_of_autocast_is_on_again():
    with torch.autocast("cpu", torch.bfloat16):
        with recomputed(True):
            assert not torch.is_autocast_cache_enabled()
        assert torch.is_autocast_cache_enabled()
