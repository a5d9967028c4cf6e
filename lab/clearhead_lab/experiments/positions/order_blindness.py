"""Attention without positions cannot see the order of its input, unless a causal mask shows it."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Transformer
from clearhead_lab.experiment import Row
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
