"""A small and a large network that read digits, and a router that asks the large one where the small one is unsure."""

from collections.abc import Iterator

import torch
from torch import Tensor

from clearhead.model import Tokens
from clearhead_lab.experiment import Row
from clearhead_lab.experiments.words.modalities import reader, some_of, written
from clearhead_lab.learning import learn, size

WIDTHS = {"small": (16, 1), "large": (64, 2)}
"""Width and number of blocks."""
ASKS = 0.3
"""The share of pictures that the router sends to the large network."""


@torch.no_grad()
def right(said: Tensor, digits: Tensor) -> float:
    """The share of pictures whose likeliest digit is right."""
    return (said.argmax(-1) == digits).double().mean().item()


def measure(seed: int, quick: bool) -> Iterator[Row]:
    """The accuracy on new pictures, by who answers, and the weights that a picture passes on average."""
    (x, y), (new, digits) = written("train", 8000), written("t10k", 200 if quick else 2000)
    said, sizes = dict[str, Tensor](), dict[str, float]()
    for name, (width, n_layers) in WIDTHS.items():
        network = reader(width, n_layers)
        learn(network, lambda: some_of(x, y), steps=300 if quick else 800, cooled=True)
        with torch.no_grad():
            said[name] = network(Tokens(new)).softmax(-1)
        sizes[name] = float(size(network))
    unsure = said["small"].max(-1).values.argsort()
    drawn = torch.randperm(len(new), generator=torch.Generator().manual_seed(seed))
    for name, order, share in (
        ("the small one", drawn, 0.0),
        ("the large one", drawn, 1.0),
        ("a router by lot", drawn, ASKS),
        ("a router", unsure, ASKS),
    ):
        sent = torch.zeros(len(new), dtype=torch.bool)
        sent[order[: int(share * len(new))]] = True
        both = torch.where(sent[:, None], said["large"], said["small"])
        cost = (share < 1) * sizes["small"] + share * sizes["large"]
        yield Row({"answers": name}, {"right": right(both, digits), "weights": cost})
