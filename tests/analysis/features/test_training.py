"""Sparse features: their gradients, planted directions found back, and a network's values explained."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead import config as c
from clearhead.analysis.features import Ended, Features, Settings, Site, Stepped, report, top_examples, train
from clearhead.analysis.features.training import AUX, Buffer, Learner
from clearhead.analysis.passes import rows_at
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from tests.small_models import TEXTS, model_of

AT = "decoder.blocks.0.resid_post"


def planted(n: int, *, d: int = 16, n_directions: int = 24, k: int = 2) -> tuple[Tensor, Tensor]:
    """n d: sums of k of the directions, with strengths from 1 to 2; and the directions."""
    draw = torch.Generator().manual_seed(5)
    directions = F.normalize(torch.randn(n_directions, d, generator=draw), dim=1)
    which = torch.rand(n, n_directions, generator=draw).topk(k).indices
    strengths = 1 + torch.rand(n, k, generator=draw)
    return (directions[which] * strengths[..., None]).sum(1), directions


def test_planted_directions_are_found_back():
    values, directions = planted(4096)
    with torch.no_grad():
        learner = Learner(values, values, n=48, k=2, seed=0, dead_after=10_000, tied=True)
        for at in itertools.islice(itertools.cycle(torch.arange(4096).split(256)), 400):
            learner.update(values[at], values[at], lr=3e-3)
        features = learner.features(Site(AT, AT))
        alike = (directions @ features.w_dec.T).max(1).values
    assert (alike > 0.95).float().mean() > 0.85
    again = features.reconstructed(values)
    assert 1 - (again - values).square().sum() / (values - values.mean(0)).square().sum() > 0.9, "scaling folded in"
    assert torch.allclose(features.w_dec.norm(dim=1), torch.ones(48), atol=1e-5)


@pytest.mark.parametrize("skip", [False, True])
def test_the_gradients_are_those_of_autograd(skip: bool):
    """With dead features, whose loss has the error as a constant."""
    x, y = torch.randn(32, 6), torch.randn(32, 5)
    with torch.no_grad():
        learner = Learner(x, y, n=20, k=3, seed=0, dead_after=40, tied=False, skip=skip)
        learner.w_enc[:7] *= 0.2
        learner.idle[:7] = 100
        before = [p.clone().requires_grad_() for p in learner.parameters]
        learner.step = lambda lr: None  # type: ignore[method-assign, assignment]
        learner.update(x, y, lr=0.0)
    w_enc, w_dec, b_enc, b_dec, *w_skip = before
    scaled, target = learner.of_x(x), learner.of_y(y)
    scores = scaled @ w_enc.T + b_enc
    largest, at = scores.topk(3)
    error = torch.zeros_like(scores).scatter(1, at, largest.relu()) @ w_dec + b_dec - target
    error = error + scaled @ w_skip[0] if w_skip else error
    dead = (learner.idle > 40).nonzero()[:, 0]
    assert len(dead)
    aux, which = scores[:, dead].topk(min(3, len(dead)))
    rest = torch.zeros(32, len(dead)).scatter(1, which, aux.relu()) @ w_dec[dead] + error.detach()
    (error.square().mean() + AUX * rest.square().sum() / error.detach().square().sum()).backward()
    for found, expected in zip(learner.parameters, before, strict=True):
        assert found.grad is not None
        assert expected.grad is not None
        assert torch.allclose(found.grad, expected.grad, atol=1e-6)


@pytest.mark.parametrize("skip", [False, True])
def test_the_scaling_is_folded_into_the_weights(skip: bool):
    x, y = torch.randn(64, 6) * 3 + 1, torch.randn(64, 5) * 2 - 1
    with torch.no_grad():
        learner = Learner(x, y, n=20, k=3, seed=0, dead_after=40, tied=False, skip=skip)
        learner.b_enc += 0.1
        scaled = learner.of_x(x)
        largest, at = (scaled @ learner.w_enc.T + learner.b_enc).topk(3)
        expected = learner.sum_of(at, largest.relu()) + learner.b_dec
        expected = expected if learner.w_skip is None else expected + scaled @ learner.w_skip
        found = learner.features(Site(AT, "decoder.blocks.0.ffn.out")).reconstructed(x)
        torch.testing.assert_close(learner.of_y(found), expected, atol=1e-5, rtol=1e-5)
    with pytest.raises(UserError, match="skip: expected a transcoder"):
        next(train(model_of("nano").network, batches(), Site(AT, AT), Settings(n=64, k=8, steps=1, skip=True)))


def batches(n: int = 12) -> list[list[Tokens]]:
    model = model_of("nano")
    ids = model.reader.ids(TEXTS)
    return [[Tokens.pad(ids[i : i + 4], packed=bool(i % 8))] for i in range(0, 4 * n, 4)]


@pytest.mark.parametrize("kind", ["sae", "transcoder"])
def test_a_networks_values_are_explained(kind: str):
    network = model_of("nano").network
    site = Site.of(network, AT if kind == "sae" else "decoder.blocks.0.ffn", "sae" if kind == "sae" else "transcoder")
    events = list(train(network, batches(), site, Settings(n=64, k=8, steps=100, batch=16, lr=5e-3)))
    stepped, last = [event for event in events if isinstance(event, Stepped)], events[-1]
    assert isinstance(last, Ended)
    assert len(stepped) == last.steps == 100
    assert stepped[-1].progress == 1
    found = report(network, batches(), last.features)
    assert found.explained > 0.8
    assert found.recovered > 0.8
    assert 0 < found.active <= 8
    assert found.plain == pytest.approx(0, abs=1e-6), "without labels the loss is the distance from the plain answer"


def test_the_report_of_perfect_and_of_useless_features():
    """With labels the losses are the head's."""
    network, inputs = model_of("nano").network, batches(3)
    d = network.config.output.d_model
    labels = [batch[0].padded().real(batch[0].ids.roll(-1, 1)) for batch in inputs]
    eye = torch.eye(d)
    perfect = Features(
        Site(AT, AT), torch.cat([eye, -eye], 1), torch.zeros(2 * d), torch.cat([eye, -eye]), torch.zeros(d)
    )
    found = report(network, inputs, perfect, labels)
    assert found.recovered == pytest.approx(1, abs=1e-4)
    assert found.explained == pytest.approx(1, abs=1e-4)
    assert found.active == pytest.approx(d)
    useless = report(network, inputs, Features(Site(AT, AT), eye * 0, torch.zeros(d), eye, torch.zeros(d)), labels)
    assert useless.recovered == pytest.approx(0, abs=1e-4)
    assert useless.dead == 1
    with torch.no_grad():
        total = sum(float(network(*batch, labels=own)) for batch, own in zip(inputs, labels, strict=True))
    assert found.plain == pytest.approx(total / sum(map(len, labels)), rel=1e-5)


def test_the_report_of_a_network_that_ends_in_states():
    stack, at = model_of("demo").config.encoder, "encoder.blocks.0.resid_post"
    torch.manual_seed(0)
    network = Transformer(c.ModelConfig(encoder=stack, head=c.NoHead())).eval()
    d = network.config.output.d_model
    features = Features(Site(at, at), torch.eye(d), torch.zeros(d), torch.eye(d), torch.zeros(d))
    found = report(network, batches(3), features)  # Without the negative half of each vector.
    assert found.plain == 0
    assert 0 < found.reconstructed < found.zero
    assert 0 < found.recovered < 1


def test_the_buffer_reads_all_texts_and_shuffles_them():
    network, inputs = model_of("nano").network, batches(6)
    rows = torch.cat([rows_at(network, batch, {AT})[AT] for batch in inputs])
    buffer = Buffer(network, inputs, Site(AT, AT), n_bytes=1 << 20, seed=0)
    (x, y), *_ = itertools.islice(buffer.batches(len(rows)), 2)
    assert x is not rows
    assert torch.equal(x.sort(0).values, rows.sort(0).values)
    assert torch.equal(x, y)
    small = Buffer(network, inputs, Site(AT, AT), n_bytes=4 * 16 * 30, seed=0)
    seen = torch.cat([x for x, _ in itertools.islice(small.batches(5), 60)])
    assert len(small.x) <= 30 + 24
    assert len(seen.unique(dim=0)) == len(rows.unique(dim=0)), "all texts come in turn"


def test_the_texts_that_activate_a_feature_most():
    network, inputs = model_of("nano").network, batches(6)
    d = network.config.output.d_model
    features = Features(Site(AT, AT), torch.eye(d), torch.zeros(d), torch.eye(d), torch.zeros(d))
    first, second, *_ = top_examples(network, inputs, features, 3)
    assert first.activation >= second.activation
    tokens = inputs[first.batch][0]
    rows = rows_at(network, [Tokens(tokens.ids[first.row : first.row + 1])], {AT})[AT]
    assert float(rows[first.position, 3]) == pytest.approx(first.activation, abs=1e-4)
    everything = torch.cat([rows_at(network, batch, {AT})[AT] for batch in inputs])
    assert first.activation == pytest.approx(float(everything[:, 3].max()), abs=1e-5)


@pytest.mark.parametrize(
    ("at", "kind", "message"),
    [
        ("decoder.blocks.0.attn", "transcoder", "expected the address of an FFN"),
        ("decoder.blocks.7.ffn", "transcoder", "this network has no decoder.blocks.7"),
        ("decoder.blocks.0.resid_post[t=0]", "sae", "got one with an index"),
    ],
)
def test_places_that_are_none(at: str, kind: str, message: str):
    with pytest.raises(UserError, match=message):
        Site.of(model_of("nano").network, at, "transcoder" if kind == "transcoder" else "sae")


def test_what_an_ffn_reads():
    post = model_of("demo", norm_place="post").network
    assert Site.of(post, "decoder.blocks.0.ffn", "transcoder").reads == "decoder.blocks.0.resid_cross"
    assert Site.of(post, "encoder.blocks.0.ffn", "transcoder").reads == "encoder.blocks.0.resid_attn"
    assert (
        Site.of(model_of("nano").network, "decoder.blocks.0.ffn", "transcoder").reads == "decoder.blocks.0.ffn_norm.out"
    )
