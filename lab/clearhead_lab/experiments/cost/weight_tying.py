"""One table for input and output words, or two."""

from collections.abc import Iterator

import torch

from clearhead import config as c
from clearhead_lab.experiment import Row
from clearhead_lab.learning import decoder, learn, mean_loss, size
from clearhead_lab.texts import Chain

WORDS, WIDTH, LENGTH = 200, 64, 32


def measure(seed: int, quick: bool) -> Iterator[Row]:
    """Parameters, and the loss on new text of a random language."""
    chain = Chain(WORDS, followers=8, seed=seed)
    for tied in (True, False):
        network = decoder(WORDS, head=c.LanguageHead(tied=tied), d_model=WIDTH, positions=c.Learned(max_length=LENGTH))
        learn(network, lambda: chain.batch(32, LENGTH), steps=300 if quick else 800)
        with torch.no_grad():
            valid = sum(mean_loss(network, *chain.batch(32, LENGTH)).item() for _ in range(4)) / 4
        values = {"weights": float(size(network)), "loss": valid, "least": chain.entropy}
        yield Row({"tables": "one" if tied else "two"}, values)
