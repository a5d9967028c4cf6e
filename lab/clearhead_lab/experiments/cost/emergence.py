"""Networks of several sizes that turn a text round, judged by whole texts and by symbols (Schaeffer et al. 2023)."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Transformer
from clearhead_lab.experiment import Figures, Row
from clearhead_lab.learning import IGNORED, decoder, learn, size

SYMBOLS, LENGTH = 10, 12
WIDTHS = (4, 6, 8, 10, 12, 16)


def turned(n: int) -> tuple[Tensor, Tensor]:
    """n t: symbols and the same in the other order, and the labels of the second half."""
    first = torch.randint(SYMBOLS, (n, LENGTH))
    text = torch.cat([first, first.flip(1)], 1)
    labels = text[:, 1:].clone()
    labels[:, : LENGTH - 1] = IGNORED
    return text[:, :-1], labels


@torch.no_grad()
def right(network: Transformer, text: Tensor, labels: Tensor, *, whole: bool) -> float:
    """The share of symbols that are right, or of texts of which all are."""
    same = (network(text).argmax(-1) == labels)[:, LENGTH - 1 :]
    return (same.all(1) if whole else same).double().mean().item()


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Both shares by width, after the same number of steps."""
    for width in WIDTHS:
        network = decoder(SYMBOLS, d_model=width, n_heads=2, positions=c.Learned(max_length=2 * LENGTH))
        learn(network, lambda: turned(64), steps=200 if quick else 300, cooled=True)
        new = turned(100 if quick else 500)
        shares = {"symbols": right(network, *new, whole=False), "whole texts": right(network, *new, whole=True)}
        yield Row({"width": width, "weights": float(size(network))}, shares)


def steepest(values: Sequence[float]) -> float:
    """The largest rise from one size to the next, as a part of the whole rise."""
    whole = max(values) - values[0]
    return max(after - before for before, after in pairwise(values)) / whole if whole > 0 else 0.0


def jump(f: Figures) -> float:
    """The share of whole texts: the largest part of its rise that falls to one step of size."""
    return steepest(f.all("whole texts"))


def jump_of_symbols(f: Figures) -> float:
    """The share of symbols: the largest part of its rise that falls to one step of size."""
    return steepest(f.all("symbols"))
