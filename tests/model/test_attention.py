"""Masks and groups of heads, and the same attention as in the well-known implementations."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Layout, Tokens, attention_ops
from clearhead.model import attention as attention_module
from clearhead.model.attention import Attention
from clearhead.model.attention_bias import AttentionBias
from clearhead.trace import trace
from tests.model import small
from tests.model.mechanism import properties_of
from tests.model.small import assert_close, ids, sequences


@pytest.fixture(params=["explicit", "fused"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(attention_module, "EXPLICIT_UP_TO", 10**9 if request.param == "explicit" else 0)
    return request.param


def test_the_paper_s_equation() -> None:
    network = small.encoder(n_layers=1)
    with trace(network) as t:
        network(ids(2, 5))
    at = "encoder.blocks.0.attn."
    q, k, v = (t[at + name] for name in "qkv")
    scores = torch.einsum("bhtk,bhsk->bhts", q, k) / math.sqrt(4)
    assert_close(t[at + "scores"], scores)
    assert_close(t[at + "weights"], scores.exp() / scores.exp().sum(-1, keepdim=True))
    assert_close(t[at + "z"], t[at + "weights"] @ v)
    assert_close(t[at + "out"], t[at + "heads"].sum(1) + network.get_parameter(at + "out.bias"))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [1, 2, 4])
def test_window_ends_exactly(window: int, causal: bool, kernel: str) -> None:
    network = (small.decoder if causal else small.encoder)(n_layers=1, window=window)
    first = ids(1, 9)
    second = first.clone()
    second[:, 4] = (second[:, 4] + 1) % small.VOCAB
    with torch.no_grad():
        seen = (network(first) - network(second)).abs().amax(-1)[0] > 0
    attn_bias = [4 <= t < 4 + window if causal else abs(t - 4) < window for t in range(9)]
    assert seen.tolist() == attn_bias


def test_each_layer_has_its_own_window(kernel: str) -> None:
    network = small.encoder(n_layers=3, window=2, window_layers=(0, 2))
    with trace(network) as t:
        network(ids(1, 6))
    distance = (torch.arange(6)[:, None] - torch.arange(6)).abs()
    for layer, window in enumerate((2, 6, 2)):
        assert torch.equal(t[f"encoder.blocks.{layer}.attn.weights"][0, 0] > 0, distance < window)


@pytest.mark.parametrize(
    ("changes", "built"),
    [
        ({}, 1),
        ({"window": 2}, 1),
        ({"window": 2, "window_layers": (1,)}, 2),
        ({"window": 2, "window_layers": (0, 1)}, 1),
    ],
)
def test_a_reach_is_built_once_for_the_layers_that_share_it(
    changes: dict[str, Any], built: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, between, calls = small.decoder(**changes), AttentionBias.between, []
    monkeypatch.setattr(AttentionBias, "between", lambda *a, **k: (calls.append(1), between(*a, **k))[1])
    network(ids(1, 6))
    assert len(calls) == built


def joined(parts: list[list[int]]) -> Tokens:
    """All documents in one row, each with its own positions."""
    return Tokens(
        torch.tensor([[token for part in parts for token in part]]),
        documents=torch.tensor([[i for i, part in enumerate(parts) for _ in part]]),
        positions=torch.tensor([[p for part in parts for p in range(len(part))]]),
    )


@pytest.mark.parametrize("positions", small.POSITIONS)
@pytest.mark.parametrize("causal", [True, False])
def test_documents_are_separate_sequences(positions: str, causal: bool, kernel: str) -> None:
    network = (small.decoder if causal else small.encoder)(**small.POSITIONS[positions])
    parts = sequences(4, 2, 3)
    with torch.no_grad():
        alone = torch.cat([network(torch.tensor([part]))[0] for part in parts])
        assert_close(network(joined(parts))[0], alone)


def test_documents_pair_source_with_target(kernel: str) -> None:
    network = small.encoder_decoder()
    sources, targets = sequences(4, 2), sequences(3, 5)
    with torch.no_grad():
        alone = [network(torch.tensor([s]), torch.tensor([t]))[0] for s, t in zip(sources, targets, strict=True)]
        assert_close(network(joined(sources), joined(targets))[0], torch.cat(alone))


def test_a_row_that_sees_nothing_gives_zeros_and_finite_gradients(kernel: str) -> None:
    config = small.stack()
    attention = Attention(config)
    small.assign(attention, out__bias=torch.zeros(16))
    x = torch.randn(2, 5, 16, requires_grad=True)
    valid = torch.tensor([[True] * 5, [False] * 5])
    layout = Layout.of(Tokens(ids(2, 5), valid))
    out = attention(x, layout, AttentionBias.between(layout, layout))
    assert out[1].abs().max() == 0
    assert out[0].abs().min() > 0
    out.square().sum().backward()
    gradients = [x.grad, *(p.grad for p in attention.parameters())]
    assert all(g is not None and g.isfinite().all() for g in gradients)
    assert x.grad is not None
    assert x.grad[1].abs().max() == 0


@pytest.mark.parametrize("changes", small.PAIRS.values(), ids=small.PAIRS.keys())
def test_an_all_padding_sequence_disturbs_nothing(changes: dict[str, Any], kernel: str) -> None:
    network = small.encoder_decoder(**changes, **({} if "window_layers" in changes else {"n_layers": 1})).train()
    valid = torch.tensor([[True] * 4, [False] * 4])
    source = Tokens(ids(2, 4), valid)
    logits = network(source, Tokens(ids(2, 4, seed=1), valid))
    assert logits.isfinite().all()
    assert_close(logits[:1], network(source.ids[:1], ids(2, 4, seed=1)[:1]))
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


def test_dropout_is_off_in_evaluation_and_on_in_training(kernel: str) -> None:
    network = small.decoder(attn_dropout=0.5)
    tokens = ids(1, 8)
    with torch.no_grad():
        reference = small.decoder()(tokens)
        assert_close(network(tokens), reference)
        drawn = torch.stack([network.train()(tokens) for _ in range(2)])
    assert not torch.allclose(drawn[0], drawn[1])


def test_soft_cap_bounds_the_scores() -> None:
    capped, free = small.encoder(soft_cap=0.25, n_layers=1), small.encoder(n_layers=1)
    at = "encoder.blocks.0.attn.scores"
    with trace(free) as reference:
        free(ids(2, 6))
    with trace(capped) as t:
        capped(ids(2, 6))
    assert reference[at].abs().max() > 0.5
    assert t[at].abs().max() <= 0.25
    assert_close(t[at], 0.25 * torch.tanh(reference[at] / 0.25))


def test_grouped_queries_are_multi_head_with_repeated_keys_and_values(kernel: str) -> None:
    grouped, full = Attention(small.stack(n_kv_heads=2)), Attention(small.stack())
    full.load_state_dict(grouped.state_dict() | {
        f"{name}.{kind}": parameter.unflatten(0, (2, 4)).repeat_interleave(2, 0).flatten(0, 1)
        for name in "kv"
        for kind, parameter in grouped.get_submodule(name).named_parameters()
    })  # fmt: skip
    x = torch.randn(2, 5, 16)
    layout = Layout.of(Tokens(ids(2, 5)))
    attn_bias = AttentionBias.between(layout, layout, causal=True)
    assert_close(grouped(x, layout, attn_bias), full(x, layout, attn_bias))


# --- the same numbers as the well-known implementations -----------------------------------------------------


@pytest.mark.parametrize("n_keys", [9, 19])
def test_short_rows_of_16_bits_have_the_softmax_of_long_ones(n_keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    network, found = small.encoder(n_layers=1), list[list[Tensor]]()
    for short in (0, attention_ops.SHORT):
        monkeypatch.setattr(attention_ops, "SHORT", short)
        network.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            logits = network(ids(2, n_keys)).float()
        logits.square().sum().backward()
        found.append([logits.detach(), *(p.grad.clone() for p in network.parameters() if p.grad is not None)])
    least = 0.1 * max(float(one.norm()) for one in found[0])  # Gradients that are 0 but for rounding count less.
    for one, other in zip(*found, strict=True):
        assert (one - other).norm() <= 0.02 * max(float(other.norm()), least)


# --- sinks ---------------------------------------------------------------------------------------------------------


test_sinks_properties = properties_of({"sinks": True})


def test_a_sink_takes_its_share() -> None:
    network, at = small.decoder(sinks=True), "decoder.blocks.0.attn"
    with trace(network) as seen:
        network(ids(2, 5))
    sinks = network.get_parameter(f"{at}.sinks")[:, None, None]
    scores = seen[f"{at}.masked"].exp()
    assert_close(seen[f"{at}.weights"], scores / (scores.sum(-1, keepdim=True) + sinks.exp()))
    assert not torch.equal(sinks, torch.zeros_like(sinks))


# --- latent --------------------------------------------------------------------------------------------------------


NARROW = {"d_head": 8, "latent": c.Latent(rank=5, d_shared=2, d_value=3, query_rank=4, bias=True)}
WIDE = {
    "d_head": 6,
    "positions": c.Rotary(fraction=0.67),
    "latent": c.Latent(rank=5, d_shared=4, d_value=8, norm_eps=1e-3),
}

test_latent_properties = properties_of(NARROW, WIDE)


@pytest.mark.parametrize("changes", [NARROW, WIDE])
@torch.no_grad()
def test_all_heads_share_a_part_of_their_keys(changes: dict[str, Any]) -> None:
    network, at = small.decoder(**changes), "decoder.blocks.0.attn"
    with trace(network) as seen:
        network(ids(2, 5))
    latent, k = changes["latent"], seen[f"{at}.k"]
    shared, own = k[..., : latent.d_shared], k[..., latent.d_shared :]
    assert_close(shared, shared[:, :1].expand_as(shared))
    made = seen[f"{at}.latent.k_norm.out"]
    assert made.shape == (2, 5, latent.rank)
    assert_close(own.transpose(1, 2).flatten(2), network.get_submodule(f"{at}.k")(made))
    assert seen[f"{at}.z"].shape[-1] == latent.d_value
