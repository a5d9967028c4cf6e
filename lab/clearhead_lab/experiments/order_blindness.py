"""Attention without positions cannot see the order of its input, unless a causal mask shows it."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Transformer
from clearhead_lab.experiment import Check, Experiment, Plot, Row
from clearhead_lab.learning import accuracy, decoder, encoder, learn

SYMBOLS, LENGTH = 16, 8
KINDS: dict[str, tuple[Callable[..., Transformer], c.Positions]] = {
    "both ways, no positions": (encoder, c.NoPositions()),
    "both ways, sinusoidal": (encoder, c.Sinusoidal()),
    "causal, no positions": (decoder, c.NoPositions()),
}


def batch(n: int) -> tuple[Tensor, Tensor]:
    """Sequences with symbols 0 and 1 once each, and whether 0 comes first."""
    tokens = torch.randint(2, SYMBOLS, (n, LENGTH))
    places = torch.rand(n, LENGTH).argsort(1)[:, :2]
    tokens.scatter_(1, places, torch.tensor([[0, 1]]).expand(n, -1))
    return tokens, (places[:, 0] < places[:, 1]).long()


def measure(_: int, quick: bool) -> Iterator[Row]:
    """The change of a pooled output under a permutation, and the accuracy of telling which symbol came first."""
    for kind, (build, positions) in KINDS.items():
        head = c.ClassificationHead(n_labels=2, pool="mean")
        network = build(SYMBOLS, head=head, d_model=32, n_layers=1 if quick else 2, positions=positions)
        learn(network, lambda: batch(64), steps=150 if quick else 400)
        tokens, labels = batch(512)
        with torch.no_grad():
            change = (network(tokens) - network(tokens[:, torch.randperm(LENGTH)])).abs().max().item()
        yield Row({"network": kind}, {"change": change, "accuracy": accuracy(network, tokens, labels)})


EXPERIMENT = Experiment(
    name="order-blindness",
    claim="Without positions, attention does not see the order of its input.",
    source="documents 000 (15.1), 001, 003 (07); Vaswani et al. 2017, 3.5",
    measure=measure,
    checks=(
        Check(
            "pooled output under a permutation, no positions: change",
            lambda f: f.at("change", network="both ways, no positions"),
            at_most=1e-4,
            otherwise="The output changes under a permutation even without positions.",
        ),
        Check(
            "which symbol came first, no positions: accuracy",
            lambda f: f.at("accuracy", network="both ways, no positions"),
            at_most=0.6,
            otherwise="A network without positions tells which symbol came first.",
        ),
        Check(
            "which symbol came first, sinusoidal positions: accuracy",
            lambda f: f.at("accuracy", network="both ways, sinusoidal"),
            at_least=0.9,
            role="control",
        ),
        Check(
            "which symbol came first, causal mask and no positions: accuracy",
            lambda f: f.at("accuracy", network="causal, no positions"),
            at_most=0.6,
            role="limit",
            otherwise="Under a causal mask a network sees the order even without positions, because each place"
            " reads only what stands before it.",
        ),
    ),
    plot=Plot(x="network", y="accuracy"),
)
