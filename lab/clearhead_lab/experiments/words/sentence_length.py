"""A sentence through one fixed vector, and with attention to every state, by its length."""

from collections.abc import Iterator

import torch
from torch import Tensor

from clearhead_lab.baselines import Translator
from clearhead_lab.experiment import Row
from clearhead_lab.learning import accuracy, learn

SYMBOLS, WIDTH, BATCH, LONGEST = 16, 64, 32, 20


def batch(n: int, length: int = 0) -> tuple[Tensor, Tensor]:
    """n random sentences of one length, random unless it is given, and each word's translation, in reverse order."""
    length = length or int(torch.randint(2, LONGEST + 1, ()))
    tokens = torch.randint(0, SYMBOLS, (n, length))
    return tokens, (7 * tokens + 3).flip(1) % SYMBOLS


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Accuracy of a word by the length of the sentence, for both networks."""
    for name, attention in (("fixed vector", False), ("additive attention", True)):
        network = Translator(SYMBOLS, WIDTH, attention=attention, whole=True)
        learn(network, lambda: batch(BATCH), steps=400 if quick else 1000)
        for length in (2, 5, 10, LONGEST):
            yield Row({"network": name, "length": length}, {"accuracy": accuracy(network, *batch(128, length))})
