"""Positions added to words, or beside them: joined vectors are a sum whose two parts use different numbers."""

from collections.abc import Iterator

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Transformer
from clearhead.model.positions import sinusoids
from clearhead_lab.experiment import Row
from clearhead_lab.learning import accuracy, copying, learn, published, size, steps_to
from clearhead_lab.replacements import fix_positions

SYMBOLS, LENGTH, BACK = 16, 32, 3
LEARNED = 1.0
"""The loss in nats at which the task counts as learned. In the end every kind is right, which compares nothing."""
KINDS = {
    "added": (32, 32, 32),
    "joined, twice as wide": (64, 32, 32),
    "joined, as wide": (32, 16, 16),
}
"""The width of the vectors, and how many of their numbers are for the word and for the position."""


def network(width: int, for_word: int, for_position: int) -> Transformer:
    """The word in the first numbers of each vector, a sinusoid in the last."""
    made = published(SYMBOLS, width, positions=c.Learned(max_length=LENGTH))
    positions = torch.zeros(LENGTH, width)
    positions[:, width - for_position :] = sinusoids(torch.arange(LENGTH), for_position)
    fix_positions(made, positions)
    keep_free(made.last_stack.table.weight, for_word)
    return made


def keep_free(table: Tensor, n: int) -> None:
    """Keeps all but the first n numbers of each vector at 0."""
    table.data[:, n:] = 0.0
    used = (torch.arange(table.shape[1]) < n).to(table)

    def kept(gradient: Tensor) -> Tensor:
        return gradient * used

    table.register_hook(kept)


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Weights of the blocks, steps to learn to copy the symbol three places back, and the accuracy in the end."""
    for kind, widths in KINDS.items():
        made = network(*widths)
        losses = learn(made, lambda: copying(SYMBOLS, 32, LENGTH, BACK), steps=300 if quick else 600)
        values = {"weights": float(size(made.last_stack.blocks)), "steps to learn": steps_to(LEARNED, losses)}
        yield Row({"vectors": kind}, values | {"accuracy": accuracy(made, *copying(SYMBOLS, 128, LENGTH, BACK))})
