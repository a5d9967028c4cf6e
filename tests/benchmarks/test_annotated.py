"""The annotated peer computes what ours does, and its divergence is the smoothed cross-entropy."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.contestants.annotated import Annotated
from benchmarks.contestants.peer import Peer
from benchmarks.contestants.workload import PAD, at_random
from clearhead.model import Transformer
from tests.benchmarks.agreement import TINY, check_logits


def as_annotated(network: Transformer) -> dict[str, Tensor]:
    """Our weights under its names."""
    found: dict[str, Tensor] = {}
    for name, weight in network.state_dict().items():
        if name.startswith(("encoder.", "decoder.")) and "embed" not in name:
            theirs = name.replace(".blocks.", ".").replace(".final_norm.", "_norm.").replace(".ffn.", ".")
            found[theirs] = weight
    return found | {"embedding.weight": network.state_dict()["encoder.embed.tokens.weight"]}


def test_logits_are_ours():
    check_logits(Annotated, as_annotated)


def test_loss_is_the_cross_entropy_of_the_smoothed_labels():
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
