"""From one head to 32 of one width together, on English text."""

from collections.abc import Iterator

import torch

from clearhead_lab.experiment import Row
from clearhead_lab.learning import DISTANCES, decoder, learn, loss_on, size
from clearhead_lab.texts import N_CHARACTERS, manual

WIDTH, LENGTH = 64, 32


def measure(seed: int, quick: bool) -> Iterator[Row]:
    """Loss on new text, and the weights, by the number of heads."""
    for n_heads in (1, 2, 4, 8, 16, 32):
        torch.manual_seed(seed)
        network = decoder(N_CHARACTERS, d_model=WIDTH, n_heads=n_heads, positions=DISTANCES)
        learn(network, lambda: manual().batch(16, LENGTH), steps=300 if quick else 800, cooled=True)
        loss = loss_on(network, *manual().valid_batch(256, LENGTH))
        yield Row({"heads": float(n_heads)}, {"loss": loss, "weights": float(size(network.last_stack.blocks))})
