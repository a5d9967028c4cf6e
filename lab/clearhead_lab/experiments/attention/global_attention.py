"""Attention that sees everything, only what is near, or what is near first: on English, and after a foreign text."""

from collections.abc import Iterator
from typing import Any

import torch

from clearhead_lab.experiment import Row
from clearhead_lab.learning import DISTANCES, IGNORED, decoder, learn, loss_on
from clearhead_lab.texts import N_CHARACTERS, manual

LENGTH, OWN, JUDGED, WINDOW = 128, 32, 16, 8
NETWORKS: dict[str, dict[str, Any]] = {
    "everything": {},
    "near first": dict(window=WINDOW, window_layers=(0,)),
    "near": dict(window=WINDOW),
}


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Loss on new text, and on the last characters of 32 after their own text, a foreign one and none."""
    tokens, labels = manual().valid_batch(64 if quick else 256, LENGTH)
    last = labels.clone()
    last[:, :-JUDGED] = IGNORED
    foreign = torch.cat([tokens.roll(1, 0)[:, :-OWN], tokens[:, -OWN:]], 1)
    for name, how in NETWORKS.items():
        network = decoder(N_CHARACTERS, positions=DISTANCES, **how)
        learn(network, lambda: manual().batch(8, LENGTH), steps=100 if quick else 600, cooled=True)
        losses = {
            "loss": loss_on(network, tokens, labels),
            "after its own text": loss_on(network, tokens, last),
            "after a foreign text": loss_on(network, foreign, last),
            "after nothing": loss_on(network, tokens[:, -OWN:], last[:, -OWN:]),
        }
        yield Row({"sees": name}, losses)
