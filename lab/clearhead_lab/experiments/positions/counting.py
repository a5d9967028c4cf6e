"""Position numbers as they are, and divided by the length, against sinusoids."""

from collections.abc import Iterator

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model.positions import sinusoids
from clearhead_lab.experiment import Row
from clearhead_lab.learning import accuracy, copying, final, learn, published, steps_to
from clearhead_lab.replacements import counted, fix_positions, normalised

SYMBOLS, BACK, WIDTH = 16, 1, 64
SHORT, LONG, CELLS = 32, 64, 1024
"""Symbols in a text, and in a batch."""
LEARNED = 0.5
"""The loss, in nats, at which a network counts as having learned. It starts at ln 16 = 2.77."""
COUNTED, NORMALISED, SINUSOIDAL = "counted", "normalised", "sinusoidal"


def table(kind: str, length: int) -> Tensor:
    """t d: one number along one direction, or the sinusoids."""
    positions = torch.arange(length)
    if kind == SINUSOIDAL:
        return sinusoids(positions, WIDTH)
    number = counted(positions) if kind == COUNTED else normalised(positions, length)
    # Along a direction of mean 0, because a norm subtracts the mean.
    return number.float()[:, None] * torch.tensor([1.0, -1.0]).repeat(WIDTH // 2)


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Loss of copying the previous symbol, read both ways, steps to learn it, and accuracy by length."""
    for length in (SHORT, LONG):
        for kind in (COUNTED, NORMALISED, SINUSOIDAL):
            if (kind, length) == (NORMALISED, LONG):
                continue
            network = published(SYMBOLS, WIDTH, kind="encoder", positions=c.Learned(max_length=length))
            fix_positions(network, table(kind, length))
            n = CELLS // length
            losses = learn(
                network, lambda n=n, length=length: copying(SYMBOLS, n, length, BACK), steps=400 if quick else 600
            )
            values = {"loss": final(losses), "steps to learn": steps_to(LEARNED, losses)}
            for name, tried in (("accuracy", length), ("accuracy at half the length", length // 2)):
                fix_positions(network, table(kind, tried))
                values[name] = accuracy(network, *copying(SYMBOLS, 4 * n, tried, BACK))
            yield Row({"positions": kind, "length": length}, values)
