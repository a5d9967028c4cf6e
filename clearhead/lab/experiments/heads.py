"""One head against several that have as many weights together."""

from collections.abc import Iterator

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.lab.experiment import Check, Experiment, Plot, Row
from clearhead.lab.learning import IGNORED, accuracy, copied, decoder, learn, size
from clearhead.model import Transformer
from clearhead.trace import trace

SYMBOLS, NEAR, FAR, LENGTH = 16, 1, 4, 20


def batch(n: int) -> tuple[Tensor, Tensor]:
    """Symbols, and for each place the pair of those one and four places back as one class."""
    tokens = torch.randint(0, SYMBOLS, (n, LENGTH))
    near, far = copied(tokens, NEAR), copied(tokens, FAR)
    return tokens, torch.where(far == IGNORED, IGNORED, near * SYMBOLS + far)


def pointing(network: Transformer) -> float:
    """The largest share of any head's weight that lies on one of the two places, averaged over both."""
    with trace(network) as seen, torch.no_grad():
        network(batch(16)[0])
    weights = seen["decoder.blocks.0.attn.weights"]
    shares = [weights.diagonal(-back, -2, -1)[..., FAR:].mean((0, 2)).max().item() for back in (NEAR, FAR)]
    return sum(shares) / 2


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Accuracy along training, and the parameters."""
    block = 100 if quick else 150
    for n_heads in (1, 2, 4):
        head = c.TaggingHead(n_labels=SYMBOLS**2)
        network = decoder(
            SYMBOLS, head=head, d_model=32, n_layers=1, n_heads=n_heads, positions=c.Learned(max_length=LENGTH)
        )
        for i in range(1, 5 if n_heads > 1 else 13):
            learn(network, lambda: batch(32), steps=block, warmup=20 if i == 1 else 0)
            values = {"accuracy": accuracy(network, *batch(256)), "weights": float(size(network))}
            yield Row({"heads": str(n_heads), "blocks of steps": i}, values | {"pointing": pointing(network)})


EXPERIMENT = Experiment(
    name="heads",
    claim="A single head cannot attend to two places for two reasons; several heads of as many weights can.",
    source="documents 000 (16.1), 001, 003 (06); Vaswani et al. 2017, 3.2.2",
    measure=measure,
    checks=(
        Check(
            "weights of 4 heads over those of 1",
            lambda f: f.at("weights", heads="4") / f.at("weights", heads="1"),
            at_least=1.0,
            at_most=1.0,
        ),
        Check(
            "2 heads, in the same time: accuracy",
            lambda f: f.at("accuracy", heads="2", **{"blocks of steps": 4}),
            at_least=0.9,
        ),
        Check(
            "2 heads over 1, in the same time: accuracy",
            lambda f: (
                f.at("accuracy", heads="2", **{"blocks of steps": 4})
                - f.at("accuracy", heads="1", **{"blocks of steps": 4})
            ),
            at_least=0.1,
        ),
        Check(
            "1 head, in three times the steps: accuracy still",
            lambda f: f.at("accuracy", heads="1", **{"blocks of steps": 12}),
            at_most=0.8,
            is_limit=True,
        ),
    ),
    plot=Plot(x="blocks of steps", y="accuracy", by="heads"),
)
