"""A small and a large network that read digits, and a router that asks the large one where the small one is unsure."""

from collections.abc import Iterator

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Tokens
from clearhead_lab.experiment import Row
from clearhead_lab.experiments.words.modalities import CLASSES, PATCH, PIXELS, Examples, written
from clearhead_lab.learning import encoder, learn, size

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

    def batch() -> Examples:
        some = torch.randint(0, len(x), (64,))
        return Tokens(x[some]), y[some]

    for name, (width, n_layers) in WIDTHS.items():
        reads = c.PatchInput(image_size=PIXELS, patch_size=PATCH, n_channels=1)
        shape = dict(d_model=width, n_layers=n_layers, input=reads, positions=c.Sinusoidal())
        network = encoder(CLASSES, head=c.ClassificationHead(n_labels=CLASSES, pool="mean"), **shape)
        learn(network, batch, steps=300 if quick else 800, cooled=True)
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
