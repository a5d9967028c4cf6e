"""A shift of a sinusoidal position is a rotation, the same from every start."""

from collections.abc import Iterator

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model.positions import rotary_frequencies, rotation
from clearhead_lab.examples.parts import encoding, frequency
from clearhead_lab.experiment import Row

WIDTH = 64


def rotated(rows: Tensor, k: int) -> Tensor:
    """Each pair of components turned by the angle of k positions."""
    w = torch.tensor([frequency(dim, WIDTH) for dim in range(0, WIDTH, 2)], dtype=torch.float64)
    sine, cosine = rows[:, ::2], rows[:, 1::2]
    turned = [sine * (k * w).cos() + cosine * (k * w).sin(), cosine * (k * w).cos() - sine * (k * w).sin()]
    return torch.stack(turned, -1).flatten(1)


def rotary_products(k: int, q: Tensor, key: Tensor) -> Tensor:
    """q·k of a pair of vectors that are rotated, k positions apart, from many starts."""
    frequencies, _ = rotary_frequencies(c.Rotary(), WIDTH)
    starts = torch.arange(100, 300, 10)
    turn = [rotation(at[None], frequencies)(x.expand(1, 1, len(at), -1)) for x, at in ((q, starts), (key, starts + k))]
    return (turn[0] * turn[1]).sum(-1).flatten()


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Errors of the rotation, and of products that should depend on the distance alone."""
    starts = torch.randint(100, 1000, (20 if quick else 200,)).tolist()
    here = encoding(starts, WIDTH)
    q, key = torch.randn(2, WIDTH)
    for k in (1, 2, 5, 10, 20, 50, 100):
        ahead = encoding([p + k for p in starts], WIDTH)
        products, turned = (here * ahead).sum(1), rotary_products(k, q, key)
        yield Row(
            {"distance": k},
            {
                "error of the rotation": (rotated(here, k) - ahead).abs().max().item(),
                "product": products.mean().item(),
                "spread over starts": (products.max() - products.min()).item(),
                "spread of rotary products": turned.std().item(),
                "rotary ahead minus behind": (turned - rotary_products(-k, q, key)).abs().mean().item(),
            },
        )
