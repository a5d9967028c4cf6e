"""The same network with LayerNorm and with BatchNorm: English text, padded, and in small batches."""

from collections.abc import Iterator

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Transformer
from clearhead_lab.experiment import Row
from clearhead_lab.learning import IGNORED, decoder, learn, loss_on
from clearhead_lab.replacements import with_batch_norm
from clearhead_lab.texts import N_CHARACTERS, manual

PAD, LENGTH = N_CHARACTERS, 64
BATCHES = {
    "16 texts": (16, LENGTH),
    "16 texts with padding": (16, 4),
    "8 texts": (8, LENGTH),
    "4 texts": (4, LENGTH),
    "1 text": (1, LENGTH),
}
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
    """Loss on whole new texts outside training, after training in five kinds of batches."""
    yield Row({"batches": "frequencies alone", "norm": "no network"}, {"loss": by_frequency()})
    for kind, sizes in BATCHES.items():
        for norm in NORMS:
            network = decoder(PAD + 1, d_model=32, positions=c.Learned(max_length=LENGTH))
            if norm == "BatchNorm":
                with_batch_norm(network)
            learn(network, lambda sizes=sizes: batch(*sizes), steps=300 if quick else 800)
            loss = loss_on(network, *manual().valid_batch(128, LENGTH))
            yield Row({"batches": kind, "norm": norm}, {"loss": loss, "change": change_by_future(network)})
