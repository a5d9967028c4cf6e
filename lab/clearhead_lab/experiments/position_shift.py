"""A shift of a sinusoidal position is a rotation, the same from every start."""

from collections.abc import Iterator

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model.positions import RotaryEncoding
from clearhead_lab.examples.parts import encoding, frequency
from clearhead_lab.experiment import Check, Experiment, Plot, Row

WIDTH = 64


def rotated(rows: Tensor, k: int) -> Tensor:
    """Each pair of components turned by the angle of k positions."""
    w = torch.tensor([frequency(dim, WIDTH) for dim in range(0, WIDTH, 2)], dtype=torch.float64)
    sine, cosine = rows[:, ::2], rows[:, 1::2]
    turned = [sine * (k * w).cos() + cosine * (k * w).sin(), cosine * (k * w).cos() - sine * (k * w).sin()]
    return torch.stack(turned, -1).flatten(1)


def rotary_products(k: int, q: Tensor, key: Tensor) -> Tensor:
    """q·k of a pair of vectors that are rotated, k positions apart, from many starts."""
    rotary = RotaryEncoding(c.Rotary(), WIDTH)
    starts = torch.arange(100, 300, 10)
    turn = [rotary.rotation(at[None])(x.expand(1, 1, len(at), -1)) for x, at in ((q, starts), (key, starts + k))]
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


EXPERIMENT = Experiment(
    name="position-shift",
    claim="A shift by k positions is one rotation of the encoding; the product of two encodings tells the distance.",
    source="documents 000 (15.6), 003 (07.12); Vaswani et al. 2017, 3.5; Su et al. 2021",
    measure=measure,
    checks=(
        Check(
            "largest error of the rotation",
            lambda f: max(f.all("error of the rotation")),
            at_most=1e-3,
            otherwise="A rotation does not give the shifted encoding.",
        ),
        Check(
            "product of two encodings: spread over starts",
            lambda f: max(f.all("spread over starts")),
            at_most=1e-2,
            otherwise="The product of two encodings depends on where they are, not on their distance alone.",
        ),
        Check(
            "rotary q·k: spread over starts",
            lambda f: max(f.all("spread of rotary products")),
            at_most=1e-2,
            otherwise="The product of two rotated vectors depends on where they are, not on their distance alone.",
        ),
        Check(
            "product of two encodings at distance 100 over that at distance 50: it falls",
            lambda f: f.at("product", distance=100) / f.at("product", distance=50),
            at_most=1.0,
            role="limit",
            otherwise="The product does not fall steadily with the distance: it is larger at 100 positions than at 50.",
        ),
        Check(
            "rotary q·k: difference of ahead and behind",
            lambda f: max(f.all("rotary ahead minus behind")),
            at_least=0.1,
            role="limit",
            otherwise="Rotated vectors do not tell ahead from behind either.",
        ),
    ),
    plot=Plot(x="distance", y="product", log_x=True),
)
