"""Features in circuits: parts of what is written at their site, that add up to it, measured by patching each."""

from dataclasses import replace

import pytest
import torch

from clearhead.analysis.circuits import Circuits, Divergence
from clearhead.analysis.features import Site
from clearhead.errors import UserError
from tests.analysis.kinds import CASES, SITES, features
from tests.analysis.test_circuits import METRIC, pair, studied


def address(circuits: Circuits) -> str:
    return circuits.parts.splits[0].address


@pytest.mark.parametrize("name", SITES)
def test_features_and_their_error_are_what_was_written_and_edges_lead_to_and_from_them(name: str):
    circuits = studied(name, n_features=6)
    writes, split = circuits.whole.splits[0].writes, circuits.parts.splits[0]
    assert len(split.chosen) == 6
    assert split.has_others
    parts = [writer for writer in circuits.writers if writer.of]
    torch.testing.assert_close(sum(one.share(circuits.seen) for one in parts), circuits.seen[writes])
    gradient = circuits.gradients(readers=False).writers[writes]
    lost = circuits.seen[writes] - circuits.base[writes]
    own = sum(score for at, score in circuits.nodes().scores.items() if at.startswith(split.address))
    assert own == pytest.approx(float((lost * gradient).sum(-1).mean(0).sum()))
    edges = circuits.edges(steps=2)
    written, read = (
        torch.tensor([one.startswith(split.address) for one in names]) for names in (edges.writers, edges.readers)
    )
    assert edges.exists[written].any()
    assert bool(edges.exists[:, read].any()) != name.endswith("attention")


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


def test_features_without_a_place():
    network, inputs = CASES["decoder"]()
    own = features(network, "decoder.blocks.0.attn_norm.out", "sae")
    with pytest.raises(UserError, match="expected features of a residual stream"):
        Circuits(network, *pair(inputs), METRIC, features=[own])
    with pytest.raises(UserError, match="expected one set of features"):
        Circuits(network, *pair(inputs), METRIC, features=[features(network, "decoder.blocks.0.ffn.out", "sae")] * 2)
    wrong = replace(own, site=Site("decoder.blocks.0.attn_norm.out", "decoder.blocks.0.ffn.out"))
    with pytest.raises(UserError, match=r"expected features that read decoder\.blocks\.0\.ffn\.out or"):
        Circuits(network, *pair(inputs), METRIC, features=[wrong])
