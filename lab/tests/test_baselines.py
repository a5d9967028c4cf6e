"""What the lab builds of its own: baselines that the engine does not have, probes, real texts and artificial tasks."""

from typing import Any

import pytest
import torch

from clearhead import config as c
from clearhead.model.attention_bias import AttentionBias
from clearhead.trace import trace
from clearhead_lab.classifiers import readable
from clearhead_lab.experiments.cost import linear_attention, state_spaces
from clearhead_lab.experiments.feed_forward import ffn_memory, mixture_of_experts
from clearhead_lab.experiments.norms import norm_training
from clearhead_lab.experiments.positions import add_or_join
from clearhead_lab.language import next_words, storyteller
from clearhead_lab.learning import IGNORED, decoder, encoder, learn, stack
from clearhead_lab.replacements import (
    BatchNorm,
    Experts,
    attend_linearly,
    mixtures,
    with_batch_norm,
    with_experts,
    with_linear_attention,
)
from clearhead_lab.texts import N_CHARACTERS, Written, library, manual


def test_linear_attention_is_a_weighted_mean_of_the_values():
    q, k, v = torch.randn(3, 2, 4, 5, 8, dtype=torch.float64)
    likeness = (torch.nn.functional.elu(q) + 1) @ (torch.nn.functional.elu(k) + 1).mT
    expected = likeness / likeness.sum(-1, keepdim=True) @ v
    torch.testing.assert_close(attend_linearly(q, k, v, AttentionBias(), 1), expected)


@pytest.mark.parametrize("kind", [state_spaces.LINEAR, state_spaces.CHOSEN])
def test_pairs_give_what_a_state_of_one_size_gives(kind: str):
    network = state_spaces.build(kind, 9)
    attention: Any = network.get_submodule("decoder.blocks.0.attn")
    x = torch.randn(1, 6, state_spaces.WIDTH)
    q, k, v = (one(x)[0].unflatten(-1, (2, -1)) for one in (attention.q, attention.k, attention.v))
    decay = attention.decay(x)[0].sigmoid()
    state, total, out = torch.zeros(2, 16, 16), torch.zeros(2, 16), []
    for t in range(6):
        keep = torch.ones(2) if kind == state_spaces.LINEAR else decay[t]
        key, query = torch.nn.functional.elu(k[t]) + 1, torch.nn.functional.elu(q[t]) + 1
        state = keep[:, None, None] * state + key[:, :, None] * v[t][:, None]
        total = keep[:, None] * total + key
        out.append((query[:, None] @ state)[:, 0] / (query * total).sum(-1, keepdim=True))
    expected = attention.out(torch.stack(out).flatten(1))
    torch.testing.assert_close(attention(x, None)[0], expected, rtol=1e-4, atol=1e-5)


def test_network_with_linear_attention_finds_no_softmax():
    network = encoder(8, d_model=16, positions=c.NoPositions())
    tokens = torch.randint(0, 8, (2, 6))
    exact = network(tokens)
    with torch.no_grad(), trace(with_linear_attention(network)) as seen:
        linear = network(tokens)
    assert "encoder.blocks.0.attn.weights" not in seen
    assert not torch.allclose(exact, linear)
    moved = torch.randperm(6)
    torch.testing.assert_close(network(tokens[:, moved]), linear[:, moved])


def test_a_word_goes_through_one_expert():
    experts = Experts(stack(8, 16), 3).eval()
    x = torch.randn(2, 5, 16)
    out = experts(x)
    shares = experts.router(x).softmax(-1)
    best = shares.argmax(-1)
    expected = torch.stack([shares[b, t, e] * experts.experts[e](x[b, t][None, None])[0, 0]
                            for b in range(2) for t in range(5) for e in [best[b, t]]])  # fmt: skip
    torch.testing.assert_close(out.flatten(0, 1), expected)


def test_bias_of_a_crowded_expert_falls():
    experts = Experts(stack(8, 16), 3).train()
    with torch.no_grad():
        experts.router.weight.zero_()
        experts.bias.copy_(torch.tensor([0.0, 1.0, 0.0]))
    experts(torch.randn(2, 5, 16))
    assert experts.chosen is not None
    assert experts.chosen.eq(1).all()
    torch.testing.assert_close(experts.bias, torch.tensor([0.01, 0.99, 0.01]))


def test_experts_and_their_router_learn():
    network = with_experts(decoder(8, d_model=16, d_ff=8), 4)
    before = [mixture.router.weight.clone() for mixture in mixtures(network)]
    learn(network, lambda: (torch.randint(0, 8, (4, 6)), torch.randint(0, 8, (4, 6))), steps=2)
    for mixture, was in zip(mixtures(network), before, strict=True):
        assert not torch.equal(mixture.router.weight, was)


def test_batch_norm_replaces_every_layer_norm_and_sees_the_batch():
    network = with_batch_norm(decoder(16, d_model=16))
    assert sum(isinstance(module, BatchNorm) for module in network.modules()) == 5
    x = BatchNorm(16).train()(3 + torch.randn(4, 6, 16)).flatten(0, 1)
    torch.testing.assert_close(x.mean(0), torch.zeros(16), atol=1e-5, rtol=0)
    assert norm_training.change_by_future(with_batch_norm(decoder(norm_training.PAD + 1, d_model=16))) > 0
    assert norm_training.change_by_future(decoder(norm_training.PAD + 1, d_model=16)) == 0


def test_probe_reads_what_is_there_and_no_more():
    labels = torch.randint(0, 4, (600,))
    vectors = torch.eye(4)[labels] @ torch.randn(4, 12) + 0.01 * torch.randn(600, 12)
    assert readable(vectors, labels, n_fitted=400) == 1.0
    assert readable(torch.randn(600, 12), labels, n_fitted=400) < 0.5


def test_written_text_is_split_and_shifted():
    text = Written("ab~\n€" * 20)
    assert text.train[:5].tolist() == [65, 66, 94, 95, 31]
    assert (len(text.train), len(text.valid)) == (90, 10)
    inputs, labels = text.valid_batch(2, 4)
    assert inputs.tolist() == [[65, 66, 94, 95], [95, 31, 65, 66]]
    assert torch.equal(inputs[:, 1:], labels[:, :-1])


@pytest.mark.parametrize("text", [manual, library])
def test_python_brings_real_texts(text):
    ids = text().train
    assert len(ids) > 300_000
    assert 0 <= int(ids.min()) <= int(ids.max()) < N_CHARACTERS
    assert (ids == 0).double().mean() < 0.4  # Not mostly blanks.


def test_joined_vectors_stay_apart_in_training():
    network = add_or_join.network(16, 8, 8)
    learn(network, lambda: add_or_join.copying(16, 2, 32, 3), steps=2)
    with trace(network) as seen:
        network(torch.randint(0, 16, (1, 32)))
    words, positions = seen["decoder.embed.tokens"][0], seen["decoder.embed.positions"][0]
    assert words[:, :8].all()
    assert not words[:, 8:].any()
    assert not positions[:, :8].any()


def test_a_padded_batch_has_no_labels_in_its_padding():
    tokens, labels = norm_training.batch(64, 4)
    padding = tokens == norm_training.PAD
    assert padding.any()
    assert (labels[padding] == IGNORED).all()
    assert (labels[~padding] != IGNORED).any()


def test_a_key_is_asked_for_the_value_of_its_pair():
    words, labels = linear_attention.batch(3, 5)
    for row, answers in zip(words.tolist(), labels.tolist(), strict=True):
        known = {word // linear_attention.VALUES: word % linear_attention.VALUES for word in row[:5]}
        asked = [word - linear_attention.KEYS * linear_attention.VALUES for word in row[5:]]
        assert answers == [IGNORED] * 5 + [known[key] for key in asked]


def test_a_language_decides_what_follows_a_word():
    languages = mixture_of_experts.Languages(seed=0)
    inputs, labels = languages.batch(16)
    assert (labels[:, 0] == IGNORED).all()
    for row, following in zip(inputs, labels, strict=True):
        followers = languages.chains[int(row[0]) - mixture_of_experts.WORDS].next
        assert all(word in followers[before] for before, word in zip(row[1:], following[1:], strict=True))


def test_facts_without_no_unit_are_as_they_were():
    pairs, labels = ffn_memory.facts()
    network = ffn_memory.build()
    answers = network(pairs)[:, -1].argmax(-1) == labels[:, -1]
    kept = ffn_memory.known(network, pairs, labels, torch.zeros(2, 0, dtype=torch.long))
    assert kept.shape == (2, len(pairs))
    assert (kept == answers).all()


@pytest.mark.usefixtures("data_folder")
def test_a_word_of_several_pieces_has_the_probability_of_all():
    model = storyteller()
    whole, parts = (model.tokenizer.encode(word) for word in ("man", "manking"))
    said = next_words(model, ["the", "you saw the"], ["man", "manking"])
    assert (len(whole), len(parts)) == (1, 2)
    for text, (one, both) in zip(["the", "you saw the"], said.tolist(), strict=True):
        rest = torch.tensor([[*model.inputs(text)[0].ids[0].tolist(), *parts]])
        with torch.no_grad():
            found = model.network(rest)[0].log_softmax(-1)
        n = rest.shape[1]
        assert one == pytest.approx(found[n - 3, whole[0]].item(), abs=1e-5)
        assert both == pytest.approx((found[n - 3, parts[0]] + found[n - 2, parts[1]]).item(), abs=1e-5)
