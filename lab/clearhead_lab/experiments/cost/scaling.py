"""The loss of networks of several sizes, and whether the small ones foretell the largest."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch

from clearhead import config as c
from clearhead_lab.experiment import Figures, Row
from clearhead_lab.learning import decoder, learn, loss_on, size
from clearhead_lab.texts import N_CHARACTERS, manual

LENGTH, BATCH, WIDTH_OF_HEAD = 64, 16, 8


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Loss on new text of Python's manual, by the weights of the blocks (Kaplan et al. leave out the tables)."""
    for width in (8, 16, 32, 64) if quick else (8, 16, 32, 64, 128):
        heads = width // WIDTH_OF_HEAD
        network = decoder(N_CHARACTERS, d_model=width, n_heads=heads, positions=c.Learned(max_length=LENGTH))
        # A wider network needs a smaller rate (Yang et al. 2021).
        rate = 3e-3 * (64 / width) ** 0.5
        steps = 250 if quick else 500
        learn(network, lambda: manual().batch(BATCH, LENGTH), steps=steps * 4 // 5, lr=rate)
        # The last fifth at a tenth of the rate: the noise of a high rate is as large as the gain of a size.
        learn(network, lambda: manual().batch(BATCH, LENGTH), steps=steps // 5, lr=rate / 10, warmup=0)
        new = loss_on(network, *manual().valid_batch(128, LENGTH))
        yield Row({"width": width, "weights": float(size(network.last_stack.blocks))}, {"loss": new})


def largest_rise(f: Figures) -> float:
    """The largest rise of the loss from one size to the next."""
    return max(after - before for before, after in pairwise(f.all("loss")))


def line(f: Figures) -> tuple[Sequence[float], Sequence[float], float, float]:
    """log weights and log loss of all sizes, and intercept and slope of the line through all but the largest."""
    x = [math.log(float(row.labels["weights"])) for row in f.rows]
    y = [math.log(row.values["loss"]) for row in f.rows]
    xs, ys = torch.tensor(x[:-1]), torch.tensor(y[:-1])
    slope = ((xs - xs.mean()) * (ys - ys.mean())).sum() / (xs - xs.mean()).square().sum()
    return x, y, (ys.mean() - slope * xs.mean()).item(), slope.item()


def error(f: Figures) -> float:
    """The line's error at the largest network, over that network's gain on the next smaller one."""
    x, y, start, slope = line(f)
    gain = math.exp(y[-2]) - math.exp(y[-1])
    return abs(math.exp(start + slope * x[-1]) - math.exp(y[-1])) / max(gain, 1e-3)


def bend(f: Figures) -> float:
    """The gain in log loss for each doubling from the last size but one to the last, over that of the first two."""
    x, y, _, _ = line(f)
    return ((y[-2] - y[-1]) / (x[-1] - x[-2])) / ((y[0] - y[1]) / (x[1] - x[0]))
