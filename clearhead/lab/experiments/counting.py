"""Position numbers as they are, and divided by the length, against sinusoids."""

from collections.abc import Iterator

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.lab.experiment import Check, Experiment, Plot, Row
from clearhead.lab.learning import accuracy, copying, final, learn, published
from clearhead.lab.naive import counted, fix_positions, normalised
from clearhead.model.positions import SinusoidalEncoding

SYMBOLS, BACK, WIDTH, TRAINED, SHORTER = 16, 1, 64, 32, 16
KINDS = ("counted", "normalised", "sinusoidal")


def table(kind: str, length: int) -> Tensor:
    """t d: one number along one direction, or the sinusoids."""
    positions = torch.arange(length)
    if kind == "sinusoidal":
        return SinusoidalEncoding(c.Sinusoidal(), WIDTH).embedding(positions[None])[0]
    number = counted(positions) if kind == "counted" else normalised(positions, length)
    # Along a direction of mean 0, because a norm subtracts the mean.
    return number.float()[:, None] * torch.tensor([1.0, -1.0]).repeat(WIDTH // 2)


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Loss of copying the previous symbol, read both ways, and accuracy at the trained and at half the length."""
    for kind in KINDS:
        network = published(SYMBOLS, WIDTH, kind="encoder", positions=c.Learned(max_length=TRAINED))
        fix_positions(network, table(kind, TRAINED))
        losses = learn(network, lambda: copying(SYMBOLS, 32, TRAINED, BACK), steps=300 if quick else 600)
        values = {"loss": final(losses)}
        for length in (TRAINED, SHORTER):
            fix_positions(network, table(kind, length))
            values[f"accuracy at {length}"] = accuracy(network, *copying(SYMBOLS, 128, length, BACK))
        yield Row({"positions": kind}, values)


EXPERIMENT = Experiment(
    name="counting",
    claim="Plain position numbers hinder training, and normalised ones mean another place in every length.",
    source="documents 000 (15.2), 003 (07)",
    measure=measure,
    checks=(
        Check("sinusoidal: accuracy", lambda f: f.at("accuracy at 32", positions="sinusoidal"), at_least=0.9),
        Check("counted: accuracy", lambda f: f.at("accuracy at 32", positions="counted"), at_most=0.7),
        Check(
            "normalised, at half the length: accuracy",
            lambda f: f.at("accuracy at 16", positions="normalised"),
            at_most=0.5,
        ),
        Check(
            "sinusoidal, at half the length: accuracy",
            lambda f: f.at("accuracy at 16", positions="sinusoidal"),
            at_least=0.9,
        ),
        Check(
            "normalised, at the trained length: accuracy",
            lambda f: f.at("accuracy at 32", positions="normalised"),
            at_least=0.9,
            is_limit=True,
        ),
    ),
    plot=Plot(x="positions", y="accuracy at 32"),
)
