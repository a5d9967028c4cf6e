"""Nine ways to give positions, with one network, one budget and two tasks."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.config.positions import FIXED_BIAS
from clearhead.model import Transformer
from clearhead_lab.experiment import Row
from clearhead_lab.learning import accuracy, copying, learn, loss_on, published
from clearhead_lab.replacements import counted, fix_positions
from clearhead_lab.texts import N_CHARACTERS, manual

SYMBOLS, BACK, WIDTH, LENGTH = 16, 3, 32, 32
ENCODINGS: dict[str, c.Encoding] = {
    "one-hot": c.Learned(max_length=LENGTH),
    "integers": c.Learned(max_length=LENGTH),
    "sinusoidal": c.Sinusoidal(),
    "learned": c.Learned(max_length=LENGTH),
    "relative vectors": c.Disentangled(max_distance=16, position_to_content=False),
    "bias by distance": c.RelativeBias(n_buckets=16, max_distance=32),
    "ALiBi": FIXED_BIAS,
    "rotary": c.Rotary(),
    "none": c.NoPositions(),
}
"""Relative vectors are those of Shaw et al. 2018 in the scores, projected by each layer. The bias by distance
is that of Raffel et al. 2019."""
TABLES: dict[str, Callable[[], Tensor]] = {
    # As long as a vector of sinusoids.
    "one-hot": lambda: torch.eye(LENGTH, WIDTH) * (WIDTH / 2) ** 0.5,
    # Along a direction of mean 0, because a norm subtracts the mean.
    "integers": lambda: counted(range(LENGTH)).float()[:, None] * torch.tensor([1.0, -1.0]).repeat(WIDTH // 2),
}


def build(name: str, n_symbols: int, kind: c.StackName) -> Transformer:
    """A network with these positions. The tables of one-hot vectors and of integers do not train."""
    network = published(n_symbols, WIDTH, kind=kind, positions=ENCODINGS[name])
    if name in TABLES:
        fix_positions(network, TABLES[name]())
    return network


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Loss on new text of Python's manual, left to right, and accuracy of copying the third symbol back, both ways."""
    for name in ENCODINGS:
        writer = build(name, N_CHARACTERS, "decoder")
        learn(writer, lambda: manual().batch(16, LENGTH), steps=200 if quick else 400)
        loss = loss_on(writer, *manual().valid_batch(256, LENGTH))
        reader = build(name, SYMBOLS, "encoder")
        learn(reader, lambda: copying(SYMBOLS, 32, LENGTH, BACK), steps=200 if quick else 300)
        values = {"loss": loss, "accuracy": accuracy(reader, *copying(SYMBOLS, 64, LENGTH, BACK))}
        yield Row({"positions": name}, values)
