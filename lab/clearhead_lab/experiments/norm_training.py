"""The same network with LayerNorm and with BatchNorm: English text, padded, and in small batches."""

from collections.abc import Iterator

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Transformer
from clearhead_lab.batch_norm import with_batch_norm
from clearhead_lab.experiment import Check, Experiment, Figures, Plot, Row
from clearhead_lab.learning import IGNORED, decoder, learn, mean_loss
from clearhead_lab.written import N_CHARACTERS, manual

PAD, LENGTH = N_CHARACTERS, 64
WHOLE, PADDED, SMALL = "16 texts", "16 texts with padding", "1 text"
BATCHES = {WHOLE: (16, LENGTH), PADDED: (16, 4), SMALL: (1, LENGTH)}
"""Texts in a batch, and the shortest of them; the others end anywhere between."""
NORMS = ("LayerNorm", "BatchNorm")


def batch(n: int, shortest: int) -> tuple[Tensor, Tensor]:
    """n t characters of Python's manual, each text with padding after its end, and the characters that follow."""
    tokens, labels = manual().batch(n, LENGTH)
    ends = torch.randint(shortest, LENGTH + 1, (n,))
    past = torch.arange(LENGTH) >= ends[:, None]
    return tokens.masked_fill(past, PAD), labels.masked_fill(past, IGNORED)


@torch.no_grad()
def change_by_future(network: Transformer) -> float:
    """The largest change of a logit in training when only later characters of the text change."""
    tokens, half = manual().valid_batch(8, LENGTH)[0], LENGTH // 2
    other = tokens.clone()
    other[:, half:] = torch.randint(0, N_CHARACTERS, (8, LENGTH - half))
    network.train()
    return (network(tokens) - network(other))[:, :half].abs().max().item()


def by_frequency() -> float:
    """The loss on new text of the frequencies of characters alone, in nats."""
    counts = manual().train.bincount(minlength=N_CHARACTERS) + 1
    return -(counts / counts.sum()).log()[manual().valid_batch(128, LENGTH)[1]].mean().item()


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Loss on whole new texts outside training, after training in three kinds of batches."""
    yield Row({"batches": "frequencies alone", "norm": "no network"}, {"loss": by_frequency()})
    for kind, sizes in BATCHES.items():
        for norm in NORMS:
            network = decoder(PAD + 1, d_model=32, positions=c.Learned(max_length=LENGTH))
            if norm == "BatchNorm":
                with_batch_norm(network)
            learn(network, lambda sizes=sizes: batch(*sizes), steps=300 if quick else 800)
            with torch.no_grad():
                loss = mean_loss(network, *manual().valid_batch(128, LENGTH)).item()
            yield Row({"batches": kind, "norm": norm}, {"loss": loss, "change": change_by_future(network)})


def worse(f: Figures, batches: str) -> float:
    """The loss with BatchNorm less that with LayerNorm."""
    return f.at("loss", norm="BatchNorm", batches=batches) - f.at("loss", norm="LayerNorm", batches=batches)


EXPERIMENT = Experiment(
    name="norm-training",
    claim="BatchNorm fails in a Transformer where texts are padded or batches small; LayerNorm does not.",
    source="documents 000 (17.2.1), 003 (08.4); Ba et al. 2016; Shen et al. 2020",
    measure=measure,
    checks=(
        Check(
            "texts with padding, loss with BatchNorm less with LayerNorm",
            lambda f: worse(f, PADDED),
            at_least=0.1,
            otherwise="BatchNorm learns from texts with padding as well as LayerNorm does.",
        ),
        Check(
            "one text in a batch, loss with BatchNorm less with LayerNorm",
            lambda f: worse(f, SMALL),
            at_least=0.1,
            otherwise="BatchNorm learns from one text at a time as well as LayerNorm does.",
        ),
        Check(
            "BatchNorm, in training: change of a logit by later characters",
            lambda f: min(f.all("change", norm="BatchNorm")),
            at_least=1e-3,
            otherwise="BatchNorm does not let later characters change earlier logits.",
        ),
        Check(
            "LayerNorm, in training: change of a logit by later characters",
            lambda f: max(f.all("change", norm="LayerNorm")),
            at_most=0.0,
            otherwise="LayerNorm lets later characters change earlier logits.",
        ),
        Check(
            "16 whole texts, loss with BatchNorm less with LayerNorm",
            lambda f: worse(f, WHOLE),
            at_most=0.05,
            role="limit",
            otherwise="Padding and small batches are not the only reason: BatchNorm is worse in large batches of whole"
            " texts too.",
        ),
        Check(
            "LayerNorm: worst loss less that of the frequencies alone",
            lambda f: max(f.all("loss", norm="LayerNorm")) - f.at("loss", batches="frequencies alone"),
            at_most=-0.2,
            role="control",
        ),
    ),
    plot=Plot(x="batches", y="loss", by="norm"),
)
