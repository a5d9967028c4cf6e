"""One head against several that have as many weights together."""

from collections.abc import Iterator

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Transformer
from clearhead.trace import trace
from clearhead_lab.experiment import Row
from clearhead_lab.learning import IGNORED, accuracy, copied, decoder, learn, size

SYMBOLS, NEAR, FAR, LENGTH = 16, 1, 4, 20
BLOCKS = 4
"""Measurements during training, after equal numbers of steps. One head trains three times as long."""


def batch(n: int) -> tuple[Tensor, Tensor]:
    """Symbols, and for each place the pair of those one and four places back as one class."""
    tokens = torch.randint(0, SYMBOLS, (n, LENGTH))
    near, far = copied(tokens, NEAR), copied(tokens, FAR)
    return tokens, torch.where(far == IGNORED, IGNORED, near * SYMBOLS + far)


def pointing(network: Transformer) -> dict[str, float]:
    """The largest share of any head's weight that lies on each of the two places."""
    with trace(network) as seen, torch.no_grad():
        network(batch(16)[0])
    weights = seen["decoder.blocks.0.attn.weights"]
    shares = {back: weights.diagonal(-back, -2, -1)[..., FAR:].mean((0, 2)).max().item() for back in (NEAR, FAR)}
    return {"weight one back": shares[NEAR], "weight four back": shares[FAR]}


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Accuracy along training, where the heads look, and the parameters."""
    block = 100 if quick else 150
    for n_heads in (1, 2, 4):
        head = c.TaggingHead(n_labels=SYMBOLS**2)
        network = decoder(
            SYMBOLS, head=head, d_model=32, n_layers=1, n_heads=n_heads, positions=c.Learned(max_length=LENGTH)
        )
        for i in range(1, 1 + (BLOCKS if n_heads > 1 else 3 * BLOCKS)):
            learn(network, lambda: batch(32), steps=block, warmup=20 if i == 1 else 0)
            values = {"accuracy": accuracy(network, *batch(256)), "weights": float(size(network))}
            yield Row({"heads": str(n_heads), "blocks of steps": i}, values | pointing(network))
