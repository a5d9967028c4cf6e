"""Tiles of queries against the whole attention: results, gradients, every mask, kept and recomputed weights."""

from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Tokens, Transformer
from clearhead.model import attention as attention_module
from clearhead.model.fast import blocked_attention
from clearhead.model.fast.activation_checkpointing import selective_checkpointing
from tests.model import small
from tests.model.small import assert_close, ids, sequences

LENGTH = 11


@pytest.fixture
def tiled(monkeypatch) -> list[int]:
    """Tiles of 4 queries of one row at a time; the ends of those that were computed."""
    seen, weights = list[int](), blocked_attention._weights
    monkeypatch.setattr(blocked_attention, "TILE", 4)
    monkeypatch.setattr(blocked_attention, "AT_ONCE", 1)
    monkeypatch.setattr(attention_module, "TILE", 4)
    monkeypatch.setattr(blocked_attention, "_weights", lambda *a: (seen.append(a[4].end), weights(*a))[1])
    return seen


def gradients(network: Transformer, tokens: Tokens | Tensor, *, again: bool = False) -> dict[str, Tensor]:
    """Those of the mean square of the logits."""
    with selective_checkpointing(again):
        loss = network(tokens).square().mean()
    return small.gradients(network, loss)


def assert_whole(network: Transformer, tokens: Tokens | Tensor, patch: pytest.MonkeyPatch, *, again: bool) -> None:
    """The gradients are those of an attention without tiles."""
    found = gradients(network, tokens, again=again)
    patch.setattr(attention_module, "TILE", 10**9)
    for name, expected in gradients(network, tokens).items():
        assert_close(found[name], expected)


def packed() -> Tokens:
    parts = sequences(5, 2, 4)
    return Tokens(
        torch.tensor([[token for part in parts for token in part], [1] * LENGTH]),
        documents=torch.tensor([[i for i, part in enumerate(parts) for _ in part], [0] * 6 + [1] * 5]),
        positions=torch.tensor([[p for part in parts for p in range(len(part))], [*range(6), *range(5)]]),
    )


def padded() -> Tokens:
    return Tokens(ids(2, LENGTH), torch.arange(LENGTH) < torch.tensor([[LENGTH], [7]]))


CASES: dict[str, tuple[dict[str, Any], Tokens | Tensor]] = {
    "causal": ({}, ids(3, LENGTH)),
    "window": ({"window": 3}, ids(2, LENGTH)),
    "documents": ({}, packed()),
    "padding": ({}, padded()),
    "grouped heads, rotary": ({"n_kv_heads": 2, "positions": c.Rotary()}, ids(2, LENGTH)),
}


@pytest.mark.parametrize("again", [False, True], ids=["kept", "again"])
@pytest.mark.parametrize("name", CASES)
def test_tiles_are_the_whole_attention(name: str, again: bool, tiled: list[int], monkeypatch):
    changes, tokens = CASES[name]
    network = small.decoder(n_layers=1, **changes).train()
    assert_whole(network, tokens, monkeypatch, again=again)
    n_rows = len(tokens if isinstance(tokens, Tensor) else tokens.ids)
    assert tiled == n_rows * [11, 8, 4] * (2 if again else 1)


def test_weights_are_the_same_to_the_bit_when_computed_again(tiled: list[int]):
    network = small.decoder(n_layers=2).train()
    with torch.autocast("cpu", torch.bfloat16):
        kept, again = (gradients(network, ids(2, LENGTH), again=one) for one in (False, True))
    assert all(torch.equal(kept[name], again[name]) for name in kept)


@pytest.mark.parametrize("again", [False, True], ids=["kept", "again"])
def test_dropout_of_weights_has_the_gradient_of_its_own_draw(again: bool, tiled: list[int]):
    q, k, v = (torch.randn(2, 2, LENGTH, 2, dtype=torch.float64, requires_grad=True) for _ in "qkv")
    mask = torch.full((1, 1, LENGTH, LENGTH), float("-inf")).triu(1)

    def z(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        torch.manual_seed(0)
        with selective_checkpointing(again):
            return blocked_attention.blocked_attention(q, k, v, mask, None, is_causal=True, rate=0.5)

    assert torch.autograd.gradcheck(z, (q, k, v))
    without = blocked_attention.blocked_attention(q, k, v, mask, None, is_causal=True)
    assert 0.1 < (z(q, k, v) - without).abs().mean() < 1.0


def test_frozen_maps_get_no_gradient(tiled: list[int], monkeypatch):
    network = small.decoder(n_layers=1).train()
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    network.get_submodule("decoder.blocks.0.attn.k").requires_grad_(True)
    assert_whole(network, ids(2, LENGTH), monkeypatch, again=False)
    assert tiled


@pytest.mark.parametrize("changes", [{"soft_cap": 2.0}, {"positions": c.RelativeBias(n_buckets=8)}, {"sinks": True}])
def test_other_scores_are_computed_whole(changes: dict[str, Any], tiled: list[int]):
    gradients(small.decoder(n_layers=1, **changes).train(), ids(2, LENGTH))
    assert tiled == []


def test_an_encoder_and_an_evaluation_are_computed_whole(tiled: list[int]):
    gradients(small.encoder(n_layers=1).train(), ids(2, LENGTH))
    with torch.no_grad():
        small.decoder(n_layers=1)(ids(2, LENGTH))
    assert tiled == []
