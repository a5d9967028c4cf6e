"""The annotated peer computes what ours does, and its divergence is the smoothed cross-entropy."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.annotated import Annotated
from benchmarks.ours import network_config, translation
from benchmarks.peer import Peer
from benchmarks.workload import PAD, Workload, at_random
from clearhead.model import Transformer

TINY = Workload(d_model=16, n_layers=2, n_heads=2, d_ff=24, vocab_size=50, n_pairs=60, max_tokens=256)


def as_annotated(network: Transformer) -> dict[str, Tensor]:
    """Our weights under its names."""
    found: dict[str, Tensor] = {}
    for name, weight in network.state_dict().items():
        if name.startswith(("encoder.", "decoder.")) and "embed" not in name:
            theirs = name.replace(".blocks.", ".").replace(".final_norm.", "_norm.").replace(".ffn.", ".")
            found[theirs] = weight
    return found | {"embedding.weight": network.state_dict()["encoder.embed.tokens.weight"]}


def test_logits_are_ours() -> None:
    torch.manual_seed(1)
    ours, peer = Transformer(network_config(TINY)).eval(), Annotated(TINY).eval()
    peer.load_state_dict(as_annotated(ours))
    task = translation(TINY)
    batch = task.collate(task.plan(seed=0, epoch=0)[0])
    source, target = batch.inputs
    assert source.valid is not None
    with torch.no_grad():
        expected = target.real(peer(source.ids, target.ids))
        assert torch.allclose(ours(source, target), expected, atol=1e-5)


def test_loss_is_the_cross_entropy_of_the_smoothed_labels() -> None:
    contestant = Peer(TINY, None, bf16=False, network=Annotated, plan=at_random)
    contestant.prepare(1)
    [batch] = contestant.ready
    network = contestant.network.eval()
    assert (batch.labels == PAD).any()
    real = batch.labels != PAD
    labels = batch.labels[real]
    smoothed = torch.full((len(labels), TINY.vocab_size), TINY.label_smoothing / (TINY.vocab_size - 2))
    smoothed[:, PAD] = 0
    smoothed[torch.arange(len(labels)), labels] = 1 - TINY.label_smoothing
    with torch.no_grad():
        expected = F.cross_entropy(network(batch.source, batch.target)[real], smoothed)
        assert math.isclose(network.loss(batch).item(), expected.item(), rel_tol=1e-5)
