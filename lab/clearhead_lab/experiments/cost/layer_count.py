"""From one block to twelve of one width, on English text."""

from collections.abc import Iterator

import torch

from clearhead import config as c
from clearhead_lab.experiment import Row
from clearhead_lab.learning import decoder, learn, mean_loss, size
from clearhead_lab.texts import N_CHARACTERS, manual

LENGTH = 32
POSITIONS = c.RelativeBias(n_buckets=16, max_distance=32)


def measure(seed: int, quick: bool) -> Iterator[Row]:
    """Loss on new text after the same number of steps, and the weights, by the number of blocks."""
    for n_layers in (1, 2, 4, 6, 12):
        torch.manual_seed(seed)
        network = decoder(N_CHARACTERS, n_layers=n_layers, positions=POSITIONS)
        learn(network, lambda: manual().batch(16, LENGTH), steps=200 if quick else 600, cooled=True)
        with torch.no_grad():
            loss = mean_loss(network, *manual().valid_batch(256, LENGTH)).item()
        yield Row({"blocks": float(n_layers)}, {"loss": loss, "weights": float(size(network.last_stack.blocks))})
