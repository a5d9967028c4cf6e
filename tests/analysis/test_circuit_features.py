"""Features in circuits: parts of what is written at their site, that add up to it, measured by patching each."""

import pytest
import torch
from torch import Tensor

from clearhead.analysis.circuits import (
    Circuits,
    Divergence,
    patched_but,
    patched_edges,
    patched_nodes,
    refined_edges,
)
from clearhead.analysis.circuits.circuits import Baseline
from clearhead.analysis.features import Features, Site
from clearhead.analysis.features.dictionary import Kind
from clearhead.api.features import attach
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.trace import trace
from tests.analysis.kinds import CASES
from tests.analysis.test_circuits import METRIC, agreement, are_as_patched, matrix, pair

SITES: dict[str, tuple[str, str, Kind]] = {
    "stream": ("decoder", "decoder.blocks.0.resid_post", "sae"),
    "post_norm_middle": ("decoder_post", "decoder.blocks.1.resid_attn", "sae"),
    "first_stream": ("tags", "encoder.blocks.0.resid_pre", "sae"),
    "last_stream": ("decoder_grouped_rotary", "decoder.blocks.1.resid_post", "sae"),
    "feed_forward": ("decoder_window_sandwich", "decoder.blocks.0.ffn.out", "sae"),
    "transcoder": ("decoder", "decoder.blocks.1.ffn", "transcoder"),
    "post_norm_transcoder": ("decoder_post", "decoder.blocks.0.ffn", "transcoder"),
    "attention": ("pictures", "encoder.blocks.1.attn.out", "sae"),
    "cross_attention": ("encoder_decoder", "decoder.blocks.0.cross.out", "sae"),
    "read_across": ("encoder_decoder", "encoder.blocks.1.resid_post", "sae"),
}


def features(network: Transformer, at: str, kind: Kind, *, k: int | None = 6, n: int = 40) -> Features:
    """Features of random directions that explain a part of the value."""
    draw = torch.Generator().manual_seed(5)
    d = network.last_stack.config.d_model
    w_dec = torch.nn.functional.normalize(torch.randn(n, d, generator=draw), dim=-1)
    w_enc = (w_dec.T if kind == "sae" else torch.randn(d, n, generator=draw)) * 0.4
    bias = 0.1 * torch.randn(n, generator=draw)
    own = Features(Site.of(network, at, kind), w_enc, bias, w_dec, torch.zeros(d), k=k)
    attach(network, own)
    return own


def studied(name: str, *, n_features: int = 8, corrupt: Baseline | None = None) -> Circuits:
    case, at, kind = SITES[name]
    network, inputs = CASES[case]()
    own = features(network.double(), at, kind)
    clean, other = pair(inputs)
    return Circuits(network, clean, corrupt or other, METRIC, features=[own], n_features=n_features)


def address(circuits: Circuits) -> str:
    return circuits.parts.splits[0].address


@pytest.mark.parametrize("name", SITES)
def test_features_and_their_error_are_what_was_written_and_edges_lead_to_and_from_them(name: str):
    circuits = studied(name, n_features=6)
    whole, split = (circuits.whole.splits[0].features.site, circuits.parts.splits[0])
    assert len(split.chosen) == 6
    assert split.has_others
    parts = [writer for writer in circuits.writers if writer.of]
    torch.testing.assert_close(sum(one.share(circuits.seen) for one in parts), circuits.seen[whole.writes])
    nodes, edges = circuits.nodes(), circuits.edges(steps=2)
    gradient = circuits.gradients(readers=False).writers[whole.writes]
    lost = circuits.seen[whole.writes] - circuits.base[whole.writes]
    own = sum(score for at, score in nodes.scores.items() if at.startswith(address(circuits)))
    assert own == pytest.approx(float((lost * gradient).sum(-1).mean(0).sum()))
    with torch.no_grad():
        there = float(METRIC(circuits.network(*pair(CASES[SITES[name][0]]()[1])[1]), circuits.layout).mean())
    assert circuits.ends[1] == pytest.approx(there)
    assert patched_but(circuits, edges.exists) == pytest.approx(circuits.ends[0])
    assert patched_but(circuits, torch.zeros_like(edges.exists)) == pytest.approx(there)
    for side, names in (("from", edges.writers), ("to", edges.readers)):
        mine = torch.tensor([one.startswith(address(circuits)) for one in names])
        found = edges.exists[mine] if side == "from" else edges.exists[:, mine]
        assert bool(found.any()) == (side == "from" or not name.endswith("attention")), side


@pytest.mark.parametrize("name", SITES)
def test_every_edge_of_a_feature_is_patched_as_a_run_without_it(name: str):
    circuits = studied(name, n_features=4)
    edges, exact = circuits.edges(), patched_edges(circuits)
    assert len(exact) == int(edges.exists.sum())
    mine = [i for i, pairs in enumerate(edges.exists.nonzero().tolist()) if address(circuits) in _named(edges, pairs)]
    are_as_patched(circuits, edges, exact, edges.exists.nonzero()[mine[:: len(mine) // 6]])
    assert agreement(edges, refined_edges(circuits), matrix(circuits, exact, edges)[edges.exists]) > 0.85


def _named(edges, pairs: list[int]) -> str:
    return f"{edges.writers[pairs[0]]} {edges.readers[pairs[1]]}"


@pytest.mark.parametrize("name", ["stream", "post_norm_transcoder", "attention", "read_across"])
def test_a_feature_is_patched_as_an_edit_of_its_address(name: str):
    circuits = studied(name)
    exact, split = patched_nodes(circuits), circuits.parts.splits[0]
    for i in split.chosen[:3]:
        at = f"{split.address}[f={i}]"
        with torch.no_grad(), trace(circuits.network, {at: circuits.base[split.address][..., i]}):
            logits = circuits.network(*circuits.tokens.values())
        lost = circuits.ends[0] - float(METRIC(logits, circuits.layout).mean())
        assert exact[at] == pytest.approx(lost, abs=1e-10)


def test_to_first_order_features_are_what_patching_measures():
    for name in ("stream", "transcoder", "cross_attention"):
        circuits = studied(name, n_features=40)
        for path, base in circuits.base.items():
            circuits.base[path] = circuits.seen[path] + 1e-5 * (base - circuits.seen[path])
        edges = circuits.edges()
        truth = matrix(circuits, patched_edges(circuits), edges)
        assert (edges.scores - truth).abs().max() < 1e-3 * truth.abs().max()
        exact, found = patched_nodes(circuits), circuits.nodes().scores
        rows = torch.tensor([[exact[at], found[at]] for at in exact])
        assert (rows[:, 0] - rows[:, 1]).abs().max() < 1e-3 * rows[:, 0].abs().max()


@pytest.mark.parametrize("name", ["stream", "transcoder", "last_stream"])
def test_the_edges_of_a_feature_sum_to_its_node(name: str):
    circuits = studied(name)
    edges, nodes = circuits.edges(), circuits.nodes()
    for writer, total in zip(edges.writers, edges.scores.sum(1).tolist(), strict=True):
        assert total == pytest.approx(nodes.scores[writer], abs=1e-8)


def test_the_features_that_matter_most_are_chosen_for_the_metric():
    circuits = studied("stream", n_features=40)
    scores = circuits.nodes().scores
    every = {at: abs(score) for at, score in scores.items() if at.startswith(address(circuits)) and "[" in at}
    assert not circuits.parts.splits[0].has_others
    few = studied("stream", n_features=3)
    assert max(every, key=every.__getitem__) in few.nodes().scores
    away = few.explaining(Divergence(few.results[0]))
    assert len(away.parts.splits[0].chosen) == 3
    assert address(few) + ".others" in {str(one) for one in away.writers}


@pytest.mark.parametrize("kind", ["zero", "mean"])
def test_features_and_baselines_without_a_text(kind: Baseline):
    for name in ("transcoder", "attention"):
        circuits = studied(name, corrupt=kind)
        exists = circuits.edges().exists
        assert patched_but(circuits, exists) == pytest.approx(circuits.ends[0])
        assert patched_but(circuits, exists & False) == pytest.approx(circuits.ends[1])


def test_features_without_a_place():
    network, inputs = CASES["decoder"]()
    own = features(network, "decoder.blocks.0.attn_norm.out", "sae")
    with pytest.raises(UserError, match="expected features of a residual stream"):
        Circuits(network, *pair(inputs), METRIC, features=[own])
    with pytest.raises(UserError, match="expected one set of features"):
        Circuits(network, *pair(inputs), METRIC, features=[features(network, "decoder.blocks.0.ffn.out", "sae")] * 2)
    wrong = Features(Site("decoder.blocks.0.attn_norm.out", "decoder.blocks.0.ffn.out"), *_tensors(own))
    with pytest.raises(UserError, match=r"expected features that read decoder\.blocks\.0\.ffn\.out or"):
        Circuits(network, *pair(inputs), METRIC, features=[wrong])


def _tensors(own: Features) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return own.w_enc, own.b_enc, own.w_dec, own.b_dec
