"""Masks and groups of heads, and the same attention as in the well-known implementations."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.model import Layout, Tokens, attention_ops
from clearhead.model import attention as attention_module
from clearhead.model.attention import Attention, Kernel
from clearhead.model.attention_bias import AttentionBias
from clearhead.trace import trace
from tests.model import small
from tests.model.small import assert_close, ids, sequences


@pytest.fixture(params=["explicit", "fused"])
def kernel(request, monkeypatch) -> str:
    monkeypatch.setattr(attention_module, "EXPLICIT_UP_TO", 10**9 if request.param == "explicit" else 0)
    return request.param


def test_the_paper_s_equation():
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
def test_window_ends_exactly(window: int, causal: bool, kernel: str):
    network = (small.decoder if causal else small.encoder)(n_layers=1, window=window)
    first = ids(1, 9)
    second = first.clone()
    second[:, 4] = (second[:, 4] + 1) % small.VOCAB
    with torch.no_grad():
        seen = (network(first) - network(second)).abs().amax(-1)[0] > 0
    attn_bias = [4 <= t < 4 + window if causal else abs(t - 4) < window for t in range(9)]
    assert seen.tolist() == attn_bias


@pytest.mark.parametrize("asked", ["explicit", "fused"])
@torch.no_grad()
def test_each_layer_may_have_its_own_form(asked: Kernel):
    network, tokens = small.decoder(n_layers=3), ids(2, 2 * attention_module.FUSED_FROM)
    with trace(network):
        expected = network(tokens)
    one = [module for module in network.modules() if isinstance(module, Attention)][1]
    one.kernel = asked
    assert_close(network(tokens), expected)


def joined(parts: list[list[int]]) -> Tokens:
    """All documents in one row, each with its own positions."""
    return Tokens(
        torch.tensor([[token for part in parts for token in part]]),
        documents=torch.tensor([[i for i, part in enumerate(parts) for _ in part]]),
        positions=torch.tensor([[p for part in parts for p in range(len(part))]]),
    )


def test_documents_pair_source_with_target(kernel: str):
    network = small.encoder_decoder()
    sources, targets = sequences(4, 2), sequences(3, 5)
    with torch.no_grad():
        alone = [network(torch.tensor([s]), torch.tensor([t]))[0] for s, t in zip(sources, targets, strict=True)]
        assert_close(network(joined(sources), joined(targets))[0], torch.cat(alone))


def test_a_row_that_sees_nothing_gives_zeros_and_finite_gradients(kernel: str):
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
def test_an_all_padding_sequence_disturbs_nothing(changes: dict[str, Any], kernel: str):
    network = small.encoder_decoder(**changes, **({} if "window_layers" in changes else {"n_layers": 1})).train()
    valid = torch.tensor([[True] * 4, [False] * 4])
    source = Tokens(ids(2, 4), valid)
    logits = network(source, Tokens(ids(2, 4, seed=1), valid))
    assert logits.isfinite().all()
    assert_close(logits[:1], network(source.ids[:1], ids(2, 4, seed=1)[:1]))
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


def test_dropout_is_off_in_evaluation_and_on_in_training(kernel: str):
    network = small.decoder(attn_dropout=0.5)
    tokens = ids(1, 8)
    with torch.no_grad():
        reference = small.decoder()(tokens)
        assert_close(network(tokens), reference)
        drawn = torch.stack([network.train()(tokens) for _ in range(2)])
    assert not torch.allclose(drawn[0], drawn[1])


# --- the same numbers as the well-known implementations -----------------------------------------------------


@pytest.mark.parametrize("n_keys", [9, 19])
def test_short_rows_of_16_bits_have_the_softmax_of_long_ones(n_keys: int, monkeypatch):
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
