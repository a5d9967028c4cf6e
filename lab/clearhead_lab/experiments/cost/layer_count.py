"""From one block to twelve of one width, on English text."""

from collections.abc import Iterator

import torch

from clearhead_lab.experiment import Row
from clearhead_lab.learning import DISTANCES, decoder, learn, loss_on, size
from clearhead_lab.texts import N_CHARACTERS, manual

LENGTH = 32


def measure(seed: int, quick: bool) -> Iterator[Row]:
    """Loss on new text after the same number of steps, and the weights, by the number of blocks."""
    for n_layers in (1, 2, 4, 6, 12):
        torch.manual_seed(seed)
        network = decoder(N_CHARACTERS, n_layers=n_layers, positions=DISTANCES)
        learn(network, lambda: manual().batch(16, LENGTH), steps=200 if quick else 600, cooled=True)
        loss = loss_on(network, *manual().valid_batch(256, LENGTH))
        yield Row({"blocks": float(n_layers)}, {"loss": loss, "weights": float(size(network.last_stack.blocks))})
