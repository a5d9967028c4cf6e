from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from clearhead import config as c
from clearhead.analysis.circuits import (
    Circuits,
    Divergence,
    LogitDifference,
    LogProbability,
    Loss,
    VectorShift,
    curve,
    patched_but,
    patched_edges,
    patched_nodes,
    refined_edges,
    refined_nodes,
)
from clearhead.analysis.circuits.circuits import Baseline
from clearhead.analysis.circuits.graph import Edges, on_a_path
from clearhead.analysis.metrics import mean_states
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.model.block import Block
from clearhead.trace import Address, trace
from tests.analysis.kinds import CASES, SITES, features, traced
from tests.model import small

METRIC = LogitDifference(2, 1)


def studied(name: str, *, corrupt: Baseline | None = None, n_features: int = 8, nearly: bool = False) -> Circuits:
    """The circuits of a small network in float64, with features for a name of `SITES`, between inputs of equal shape.

    With `nearly` the inputs hardly differ, so that every score is the exact effect.
    """
    case, at, kind = SITES.get(name, (name, "", "sae"))
    network, inputs = CASES[case]()
    own = [features(network.double(), at, kind)] if at else []
    clean, other = pair(inputs)
    circuits = Circuits(network.double(), clean, corrupt or other, METRIC, features=own, n_features=n_features)
    for path, base in circuits.base.items() if nearly else ():
        circuits.base[path] = circuits.seen[path] + 1e-5 * (base - circuits.seen[path])
    return circuits


def pair(inputs: list[Tokens]) -> tuple[list[Tokens], list[Tokens]]:
    clean = [replace(x.padded(), ids=x.ids.double() if x.ids.is_floating_point() else x.ids) for x in inputs]
    return clean, [replace(x, ids=x.ids.flip(0) if x.ids.is_floating_point() else (5 * x.ids + 3) % 13) for x in clean]


def one(network: Transformer, corrupt: Baseline | None = None) -> Circuits:
    """The circuits of a single stack on one text."""
    return Circuits(network.double(), [small.ids(1, 6)], corrupt or [small.ids(1, 6, seed=1)], METRIC)


def spearman(a: Tensor, b: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([x.argsort().argsort().double() for x in (a, b)]))[0, 1])


def matrix(circuits: Circuits, exact: dict[tuple[str, str], float], like: Edges) -> Tensor:
    return torch.tensor([[exact.get((w, r), 0.0) for r in like.readers] for w in like.writers]).double()


@pytest.mark.parametrize("name", [*CASES, *SITES])
def test_a_run_in_which_every_edge_is_corrupt_is_the_corrupt_run(name: str):
    circuits = studied(name)
    with torch.no_grad():
        _, corrupt = pair(CASES[SITES[name][0] if name in SITES else name]()[1])
        there = float(METRIC(circuits.network(*corrupt), circuits.layout).mean())
    edges = circuits.edges()
    assert circuits.ends[1] == pytest.approx(there)
    assert patched_but(circuits, edges.exists) == pytest.approx(circuits.ends[0])
    assert patched_but(circuits, torch.zeros_like(edges.exists)) == pytest.approx(there)


@pytest.mark.parametrize("name", [*CASES, *SITES])
def test_every_edge_is_patched_as_a_run_without_it_and_refined_scores_are_close_to_that(name: str):
    circuits = studied(name, n_features=4)
    edges, exact = circuits.edges(), patched_edges(circuits)
    places = edges.exists.nonzero().tolist()
    assert len(exact) == len(places)
    own = [(w, r) for w, r in places if "features" in edges.writers[w] + edges.readers[r] or name in CASES]
    for w, r in own[:: len(own) // 6]:
        keep = edges.exists.clone()
        keep[w, r] = False
        there = circuits.ends[0] - patched_but(circuits, keep)
        assert exact[edges.writers[w], edges.readers[r]] == pytest.approx(there, abs=1e-10)
    truth, refined = matrix(circuits, exact, edges)[edges.exists], refined_edges(circuits)
    assert torch.equal(refined.exists, edges.exists)
    plain, close = (spearman(one.scores[edges.exists], truth) for one in (edges, refined))
    assert close > (max(0.85, plain) if name in CASES else 0.85)
    last = circuits.readers[-1]
    measured = [exact[w, str(last)] for w in edges.writers if (w, str(last)) in exact]
    torch.testing.assert_close(refined.scores[edges.exists[:, -1], -1], torch.tensor(measured).double())


def test_an_edge_is_patched_as_an_edit_by_hand():
    """In a pre-norm stack a query reads the stream less what the writer loses, through its norm and matrix."""
    circuits = one(small.decoder())
    network, writer, reader = circuits.network, "decoder.blocks.0.ffn.out", "decoder.blocks.1.attn.q[h=2]"
    assert network.decoder is not None
    block = network.decoder.blocks[1]
    assert isinstance(block, Block)
    assert block.attn_norm is not None
    stream = circuits.seen["decoder.blocks.1.resid_pre"] - (circuits.seen[writer] - circuits.base[writer])
    with torch.no_grad():
        assert block.attn is not None
        q = block.attn.q(block.attn_norm(stream)).unflatten(-1, (4, -1)).transpose(1, 2)
        with trace(network, {reader: q[:, 2]}):
            logits = network(*circuits.tokens.values())
    lost = circuits.ends[0] - float(METRIC(logits, circuits.layout))
    assert patched_edges(circuits, [(writer, reader)]) == {(writer, reader): pytest.approx(lost, abs=1e-12)}


@pytest.mark.parametrize("name", ["encoder_decoder", "stream", "post_norm_transcoder", "attention", "read_across"])
def test_nodes_are_patched_as_edits(name: str):
    circuits = studied(name)
    exact = patched_nodes(circuits)
    parts = ["encoder.blocks.0.attn.heads[h=1]", "decoder.blocks.1.cross.heads[h=3]", "decoder.embed.tokens"]
    for split in circuits.parts.splits:
        parts = [f"{split.address}[f={i}]" for i in split.chosen[:3]]
    for at in parts:
        where = Address.parse(at)
        value = where.of(circuits.base[where.path], "b h t d" if "heads" in at else "b t f")
        _, logits = traced(circuits.network, [*circuits.tokens.values()], {at: value})
        there = float(METRIC(logits, circuits.layout).mean())
        assert exact[at] == pytest.approx(circuits.ends[0] - there, abs=1e-10)


@pytest.mark.parametrize(
    "name",
    [
        "decoder", "decoder_grouped_rotary", "encoder_decoder", "pictures", "stream", "transcoder", "last_stream",
    ],
)  # fmt: skip
def test_the_edges_of_a_writer_sum_to_its_node(name: str):
    circuits = studied(name)
    edges, nodes = circuits.edges(), circuits.nodes()
    for writer, total in zip(edges.writers, edges.scores.sum(1).tolist(), strict=True):
        assert total == pytest.approx(nodes.scores[writer], abs=1e-8)
        assert nodes.positions[writer].sum().item() == pytest.approx(total, abs=1e-8)


@pytest.mark.parametrize(
    "name",
    [
        "decoder", "decoder_post", "decoder_window_sandwich", "encoder_decoder", "stream", "transcoder",
        "cross_attention",
    ],
)  # fmt: skip
def test_to_first_order_an_edge_is_what_patching_measures(name: str):
    circuits = studied(name, nearly=True, n_features=40)
    edges = circuits.edges()
    truth = matrix(circuits, patched_edges(circuits), edges)
    assert (edges.scores - truth).abs().max() < 1e-3 * truth.abs().max()
    exact, found = patched_nodes(circuits), circuits.nodes().scores
    rows = torch.tensor([[exact[at], found[at]] for at in exact])
    assert (rows[:, 0] - rows[:, 1]).abs().max() < 1e-3 * rows[:, 0].abs().max()


def test_the_terms_of_an_edge_sum_to_its_score():
    circuits = studied("encoder_decoder")
    for writer, reader in (
        ("encoder.blocks.1.ffn.out", "decoder.blocks.1.cross.k[h=2]"),
        ("decoder.embed.positions", "head.logits"),
    ):
        edges = circuits.edges(steps=2)
        change, gradient = circuits.terms(writer, reader, steps=2)
        score = edges.scores[edges.writers.index(writer), edges.readers.index(reader)]
        assert float((change * gradient).sum()) / len(change) == pytest.approx(float(score))
    with pytest.raises(UserError, match="no edge to"):
        circuits.terms("decoder.blocks.1.ffn.out", "encoder.blocks.0.attn.q[h=0]")


def test_integrated_gradients_see_through_a_saturated_softmax():
    """At the clean text one head's weights are 0 and 1, and its gradient is almost 0; on the way they are not."""
    network = small.decoder(n_layers=1, n_heads=1, attn_scale=60.0)
    circuits = one(network)
    exact = patched_nodes(circuits)["decoder.embed.tokens"]
    plain, mean = (circuits.nodes(steps=n).scores["decoder.embed.tokens"] for n in (0, 50))
    assert abs(mean - exact) < 0.3 * abs(plain - exact)


@pytest.mark.parametrize("name", ["decoder_grouped_rotary", "encoder_relative", "encoder_decoder", "pictures"])
def test_refined_nodes_are_exact_where_the_gradient_is_least_certain(name: str):
    circuits = studied(name)
    exact, plain = patched_nodes(circuits), circuits.nodes().scores
    refined = refined_nodes(circuits)
    assert len(refined.exact) == round(len(exact) / 3)
    assert list(refined.scores) == list(exact)
    for at, score in refined.scores.items():
        assert score == pytest.approx(exact[at] if at in refined.exact else plain[at], abs=1e-10)
    error = {at: abs(plain[at] - exact[at]) for at in exact}
    assert sum(error[at] for at in refined.exact) > 0.7 * sum(error.values()), "the wrong third"
    truth = torch.tensor(list(exact.values()))
    before, after = (spearman(torch.tensor(list(some.values())), truth) for some in (plain, refined.scores))
    assert after > before


def test_the_share_of_exact_nodes():
    circuits = one(small.decoder())
    assert refined_nodes(circuits, exact=1).exact == pytest.approx(patched_nodes(circuits))
    assert not refined_nodes(circuits, exact=0).exact
    with pytest.raises(UserError, match="exact: expected a share from 0 to 1, got 2"):
        refined_nodes(circuits, exact=2)
    with pytest.raises(UserError, match=r"decoder.blocks.9.ffn.out: no such writer"):
        patched_nodes(circuits, ["decoder.blocks.9.ffn.out"])


@pytest.mark.parametrize("kind", ["zero", "mean"])
@pytest.mark.parametrize("name", ["decoder", "transcoder", "attention"])
def test_baselines_without_a_text(name: str, kind: Baseline):
    circuits = studied(name, corrupt=kind)
    exists = circuits.edges().exists
    assert patched_but(circuits, exists) == pytest.approx(circuits.ends[0])
    assert patched_but(circuits, exists & False) == pytest.approx(circuits.ends[1])


def test_metrics():
    network = small.decoder().double()
    clean, corrupt = small.ids(2, 6), small.ids(2, 6, seed=4)
    with torch.no_grad():
        logits, other = network(clean), network(corrupt)
    first = Circuits(network, [clean], [corrupt], METRIC)
    logs = logits.log_softmax(-1)
    rows, answers = torch.arange(2), torch.tensor([4, 7])
    assert first.explaining(LogProbability((4, 7), 3)).ends[0] == pytest.approx(logs[rows, 3, answers].mean().item())
    target = torch.cat([clean[:, 1:], torch.full((2, 1), -1)], 1)
    loss = first.explaining(Loss(target))
    expected = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), clean[:, 1:].flatten())
    assert loss.ends[0] == pytest.approx(expected.item())
    assert len(patched_edges(loss, [("decoder.embed.tokens", "head.logits")])) == 1
    away = first.explaining(Divergence(logits))
    assert away.ends[0] == pytest.approx(0)
    kl = (logs.exp() * (logs - other.log_softmax(-1))).sum(-1)[:, -1].mean()
    assert away.ends[1] == pytest.approx(kl.item())
    assert all(score == pytest.approx(0) for score in away.nodes().scores.values())
    with pytest.raises(UserError, match="expected ids below 13"):
        _ = first.explaining(LogitDifference(13)).ends


def test_a_sentence_vector_moves_along_its_shift():
    stack = small.stack(norm_place="post")
    network = small.shaken(Transformer(c.ModelConfig(encoder=stack, head=c.NoHead()))).double()
    clean, corrupt = small.ids(1, 5), small.ids(1, 5, seed=1)
    with torch.no_grad():
        shift = network(clean).mean(1) - network(corrupt).mean(1)
    metric = VectorShift(torch.nn.functional.normalize(shift, dim=-1), mean_states)
    circuits = Circuits(network, [clean], [corrupt], metric)
    assert circuits.ends[0] - circuits.ends[1] == pytest.approx(shift.norm().item())
    assert circuits.edges().readers[-1] == "head"


def test_a_curve_and_what_lies_on_a_path():
    circuits = studied("encoder_decoder")
    edges = circuits.edges(steps=2)
    points = list(curve(circuits, edges, (0.0, 0.1, 1.0)))
    assert [point.n_edges for point in points] == [0, round(0.1 * int(edges.exists.sum())), int(edges.exists.sum())]
    assert [points[0].faithfulness, points[-1].faithfulness] == pytest.approx([0, 1], abs=1e-9)
    kept = edges.kept(60)
    left = on_a_path(edges, kept)
    assert 0 < left.sum() < kept.sum()
    assert patched_but(circuits, left) == pytest.approx(patched_but(circuits, kept)), "the others carry nothing"
    scores = [abs(edge.score) for edge in edges.top(60)]
    assert all(a >= b for a, b in pairwise(scores))
    above = edges.above(scores[-1])
    assert {(edge.writer, edge.reader) for edge in above} == {
        (edges.writers[w], edges.readers[r]) for w, r in left.nonzero().tolist()
    }


def test_texts_must_be_of_one_length_and_edges_must_exist():
    network = small.decoder()
    with pytest.raises(UserError, match="expected 6 tokens for the decoder, as of the clean text, got 5"):
        Circuits(network, [small.ids(1, 6)], [small.ids(1, 5)], METRIC)
    with pytest.raises(UserError, match="expected an input, zero or mean"):
        one(network, "noise")  # pyrefly: ignore[bad-argument-type]
    with pytest.raises(UserError, match="no such edge"):
        patched_edges(one(network), [("decoder.blocks.1.ffn.out", "decoder.blocks.0.ffn.pre")])


def test_weights_of_16_bits_are_computed_in_float32():
    network = small.decoder().bfloat16()
    circuits = Circuits(network, [small.ids(1, 6)], "zero", METRIC)
    assert circuits.seen["decoder.embed.tokens"].dtype == torch.float32
    assert next(network.parameters()).dtype == torch.bfloat16
