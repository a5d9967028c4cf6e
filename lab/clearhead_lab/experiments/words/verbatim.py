"""What a network writes, searched for in the text that it learned from (Carlini et al. 2021)."""

from collections.abc import Iterator
from copy import copy

from torch import Tensor

from clearhead_lab.experiment import Row
from clearhead_lab.learning import DISTANCES, decoder, learn, sampled
from clearhead_lab.texts import N_CHARACTERS, manual

LENGTH, WINDOW = 128, 40
SIZES = (3_000, 30_000, 600_000)
"""Characters of the text; the network reads 600,000 in all, so each of them 200 times, 20 times or once."""


def found_in(texts: Tensor, whole: Tensor) -> float:
    """The share of the windows of 40 characters of some texts that stand in another text."""
    known = bytes(whole.tolist())
    windows = [bytes(one) for text in texts for one in text.unfold(0, WINDOW, 1).tolist()]
    return sum(one in known for one in windows) / len(windows)


def measure(_: int, quick: bool) -> Iterator[Row]:
    """By the size of the text: what stands in it of the network's writing, and of a text that it never read."""
    unread = manual().valid_batch(32, LENGTH)[0]
    for size in SIZES:
        text = copy(manual())
        text.train = text.train[:size]
        network = decoder(N_CHARACTERS, positions=DISTANCES)
        learn(network, lambda text=text: text.batch(8, LENGTH), steps=100 if quick else 600, cooled=True)
        written = sampled(network, 8 if quick else 32, N_CHARACTERS, LENGTH)
        shares = {"copied": found_in(written, text.train), "copied by chance": found_in(unread, text.train)}
        yield Row({"characters": float(size)}, shares)
