"""What the sum of a word's vector and a position's still tells of each."""

from collections.abc import Iterator

import torch

from clearhead.model import Layout, Tokens, Transformer
from clearhead_lab.classifiers import readable
from clearhead_lab.experiment import Row
from clearhead_lab.learning import copying, learn, published

WORDS, LENGTH, BACK = 200, 64, 3
TRAINED = 64
"""The width of the network that is trained."""


@torch.no_grad()
def told(made: Transformer) -> dict[str, float]:
    """The share of sums that tell the word, by a linear map and by the nearest vector, and the position."""
    stack, given = made.last_stack, Tokens(torch.randint(0, WORDS, (300, LENGTH)))
    layout = Layout.of(given)
    sums = stack.embed(given, layout, stack.positions.embedding(layout.positions)).flatten(0, 1)
    words, positions = given.ids.flatten(), layout.positions.expand(layout.grid).flatten()
    shuffled = torch.randperm(len(sums))
    sums, words, positions = sums[shuffled], words[shuffled], positions[shuffled]
    table = stack.table.weight * sums.shape[1] ** 0.5
    n_fitted = len(sums) * 4 // 5
    return {
        "word": readable(sums, words, n_fitted=n_fitted),
        "position": readable(sums, positions, n_fitted=n_fitted),
        "nearest word": (torch.cdist(sums[n_fitted:], table).argmin(1) == words[n_fitted:]).double().mean().item(),
    }


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Accuracy of reading word and position out of their sum: new networks by width, and one after training."""
    for width in (16, 32, 64, 128, 256):
        yield Row({"network": "new", "width": width}, told(published(WORDS, width, n_layers=1)))
    trained = published(WORDS, TRAINED, n_layers=1)
    learn(trained, lambda: copying(WORDS, 16, LENGTH, BACK), steps=250 if quick else 800)
    yield Row({"network": "trained", "width": TRAINED}, told(trained))
