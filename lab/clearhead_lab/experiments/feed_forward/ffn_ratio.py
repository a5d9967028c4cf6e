"""The width inside the feed-forward, from once to eight times the model's, at one width and at one size."""

from collections.abc import Iterator

import torch

from clearhead_lab.experiment import Row
from clearhead_lab.learning import DISTANCES, decoder, learn, loss_on, size
from clearhead_lab.texts import N_CHARACTERS, manual

LENGTH = 32
WIDTH, SAME_WEIGHTS = "one width", "one size"
WIDTHS = {WIDTH: {1: 32, 2: 32, 4: 32, 8: 32}, SAME_WEIGHTS: {1: 44, 2: 40, 4: 32, 8: 24}}
"""The width of the model by ratio. A block has (4 + 2 ratio) width^2 weights."""


def measure(seed: int, quick: bool) -> Iterator[Row]:
    """Loss on new text, and the weights of the blocks, by the ratio."""
    for kept, widths in WIDTHS.items():
        for ratio, width in widths.items():
            sizes = dict(d_model=width, d_ff=ratio * width, positions=DISTANCES)
            torch.manual_seed(seed)
            network = decoder(N_CHARACTERS, **sizes)
            learn(network, lambda: manual().batch(16, LENGTH), steps=300 if quick else 800, cooled=True)
            loss = loss_on(network, *manual().valid_batch(256, LENGTH))
            weights = float(size(network.last_stack.blocks))
            yield Row({"kept": kept, "ratio": float(ratio)}, {"loss": loss, "weights": weights})
