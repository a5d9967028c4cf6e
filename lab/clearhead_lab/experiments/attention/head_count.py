"""From one head to 32 of one width together, on English text."""

from collections.abc import Iterator

import torch

from clearhead import config as c
from clearhead_lab.experiment import Row
from clearhead_lab.learning import decoder, learn, mean_loss, size
from clearhead_lab.texts import N_CHARACTERS, manual

WIDTH, LENGTH = 64, 32
POSITIONS = c.RelativeBias(n_buckets=16, max_distance=32)
"""With them a network learns text soonest, and they fit heads of any width."""


def measure(seed: int, quick: bool) -> Iterator[Row]:
    """Loss on new text, and the weights, by the number of heads."""
    for n_heads in (1, 2, 4, 8, 16, 32):
        torch.manual_seed(seed)
        network = decoder(N_CHARACTERS, d_model=WIDTH, n_heads=n_heads, positions=POSITIONS)
        learn(network, lambda: manual().batch(16, LENGTH), steps=300 if quick else 800, cooled=True)
        with torch.no_grad():
            loss = mean_loss(network, *manual().valid_batch(256, LENGTH)).item()
        yield Row({"heads": float(n_heads)}, {"loss": loss, "weights": float(size(network.last_stack.blocks))})
