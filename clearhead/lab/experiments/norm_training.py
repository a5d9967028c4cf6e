"""The same network with LayerNorm and with BatchNorm, trained under padding and in small batches."""

from collections.abc import Iterator

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.lab.batch_norm import with_batch_norm
from clearhead.lab.experiment import Check, Experiment, Figures, Plot, Row
from clearhead.lab.learning import IGNORED, accuracy, copying, decoder, learn
from clearhead.model import Transformer

SYMBOLS, PAD, LENGTH, BACK = 16, 16, 32, 3
BATCHES = {"no padding": (16, LENGTH), "padding": (16, 4), "4 sequences": (4, LENGTH)}
"""Sequences in a batch, and the shortest of them; the others end anywhere between."""
NORMS = ("LayerNorm", "BatchNorm")


def batch(n: int, shortest: int) -> tuple[Tensor, Tensor]:
    """n t symbols, each sequence with padding after its end, and the symbols three places back."""
    tokens, labels = copying(SYMBOLS, n, LENGTH, BACK)
    ends = torch.randint(shortest, LENGTH + 1, (n,))
    past = torch.arange(LENGTH) >= ends[:, None]
    return tokens.masked_fill(past, PAD), labels.masked_fill(past, IGNORED)


@torch.no_grad()
def change_by_future(network: Transformer) -> float:
    """The largest change of a logit in training when only later words of the text change."""
    tokens, half = torch.randint(0, SYMBOLS, (8, LENGTH)), LENGTH // 2
    other = tokens.clone()
    other[:, half:] = torch.randint(0, SYMBOLS, (8, LENGTH - half))
    network.train()
    return (network(tokens) - network(other))[:, :half].abs().max().item()


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Accuracy on whole sequences outside training, after training in three kinds of batches."""
    for kind, sizes in BATCHES.items():
        for norm in NORMS:
            network = decoder(PAD + 1, d_model=32, positions=c.Learned(max_length=LENGTH))
            if norm == "BatchNorm":
                with_batch_norm(network)
            learn(network, lambda sizes=sizes: batch(*sizes), steps=300 if quick else 500)
            values = {"accuracy": accuracy(network, *batch(128, LENGTH)), "change": change_by_future(network)}
            yield Row({"batches": kind, "norm": norm}, values)


def better(f: Figures, batches: str) -> float:
    """The accuracy with LayerNorm less that with BatchNorm."""
    return f.at("accuracy", norm="LayerNorm", batches=batches) - f.at("accuracy", norm="BatchNorm", batches=batches)


EXPERIMENT = Experiment(
    name="norm-training",
    claim="BatchNorm fails in a Transformer where texts are padded or batches small; LayerNorm does not.",
    source="documents 000 (17.2.1), 003 (08.4); Ba et al. 2016; Shen et al. 2020",
    measure=measure,
    checks=(
        Check(
            "LayerNorm, in every kind of batch: least accuracy",
            lambda f: min(f.all("accuracy", norm="LayerNorm")),
            at_least=0.95,
        ),
        Check("padding, LayerNorm less BatchNorm: accuracy", lambda f: better(f, "padding"), at_least=0.1),
        Check(
            "BatchNorm, in training: change of a logit by later words",
            lambda f: min(f.all("change", norm="BatchNorm")),
            at_least=1e-3,
        ),
        Check(
            "LayerNorm, in training: change of a logit by later words",
            lambda f: max(f.all("change", norm="LayerNorm")),
            at_most=0.0,
        ),
        Check(
            "4 sequences, LayerNorm less BatchNorm: accuracy",
            lambda f: better(f, "4 sequences"),
            at_least=0.1,
            is_limit=True,
        ),
    ),
    plot=Plot(x="batches", y="accuracy", by="norm"),
)
