import pytest
import torch
from torch import Tensor, nn

from clearhead import config as c
from clearhead.model import Transformer, copies
from clearhead.model.copies import copied_twice


def network() -> Transformer:
    torch.manual_seed(0)
    stack = c.StackConfig(d_model=32, n_layers=2, n_heads=2, d_ff=64, input=c.TokenInput(vocab_size=50))
    return Transformer(c.ModelConfig(encoder=stack, decoder=stack))


def gradients(some: Transformer, *, twice: bool) -> list[Tensor | None]:
    some.zero_grad()
    ids = torch.arange(24).view(2, 12)
    with torch.autocast("cpu", torch.bfloat16), copied_twice(twice):
        loss = some(ids, ids, labels=ids.flatten())
    loss.backward()
    return [p.grad for p in some.parameters()]


def test_each_matrix_is_copied_again_and_gradients_are_the_same_to_the_bit(monkeypatch: pytest.MonkeyPatch):
    some, again = network(), list[int]()
    once = gradients(some, twice=False)
    unpack = copies._unpack

    def counted(kept: Tensor | copies._Copied) -> Tensor:
        if isinstance(kept, copies._Copied):
            again.append(kept.weight.data_ptr())
        return unpack(kept)

    monkeypatch.setattr(copies, "_unpack", counted)
    twice = gradients(some, twice=True)
    matrices = {m.weight.data_ptr() for m in some.modules() if isinstance(m, nn.Linear)}
    assert sorted(again) == sorted(matrices)
    assert all(a is not None and b is not None and torch.equal(a, b) for a, b in zip(once, twice, strict=True))


def test_the_cache_of_autocast_is_on_again():
    with torch.autocast("cpu", torch.bfloat16):
        with copied_twice(True):
            assert not torch.is_autocast_cache_enabled()
        assert torch.is_autocast_cache_enabled()
