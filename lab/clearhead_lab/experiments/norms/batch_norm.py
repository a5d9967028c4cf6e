"""What BatchNorm is praised for, in a deep network that reads digits: speed, rates, drift of inputs, and new digits."""

from collections.abc import Callable, Iterator
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead_lab.experiment import Row
from clearhead_lab.learning import accuracy, steps_to

WIDTH, DEEP, CLASSES, BATCH = 64, 8, 10, 64
"""A digit has as many pixels as a layer has units."""
TRAINED = 1200
"""Digits to learn from. The others are new."""
RATES = (0.03, 0.1, 0.3, 1.0, 3.0)
LEARNED, WORKS = 0.5, 0.8
"""The loss at which a network counts as having learned, and the accuracy at which a rate counts as one that works."""


class Shifted(nn.Module):
    """BatchNorm whose output each call scales and shifts at random, unit by unit   (Santurkar et al. 2018, 2.1)"""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        """b d -> b d; at random in training alone."""
        out = self.norm(x)
        if not self.training:
            return out
        factor, shift = 0.4 * torch.randn(2, out.shape[1])
        return out * (1 + factor) + shift


NORMS: dict[str, Callable[[int], nn.Module]] = {
    "none": lambda _: nn.Identity(),
    "BatchNorm": nn.BatchNorm1d,
    "LayerNorm": nn.LayerNorm,
    "BatchNorm, shifted at random": Shifted,
}


def digits() -> tuple[Tensor, Tensor]:
    """n p: the pixels of scikit-learn's digits from 0 to 1, in random order, and the classes."""
    from sklearn.datasets import load_digits

    found = load_digits()
    order = torch.randperm(len(found.target))
    return torch.tensor(found.data / 16).float()[order], torch.tensor(found.target)[order]


def layer(norm: str) -> nn.Sequential:
    """A map that starts as He et al. 2015 draw it, a norm, and ReLU."""
    linear = nn.Linear(WIDTH, WIDTH)
    nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")
    return nn.Sequential(linear, NORMS[norm](WIDTH), nn.ReLU())


def build(norm: str) -> nn.Sequential:
    """Eight layers, and the logits."""
    return nn.Sequential(*(layer(norm) for _ in range(DEEP)), nn.Linear(WIDTH, CLASSES))


@torch.no_grad()
def inputs(network: nn.Sequential, x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of what each ReLU of the last layer reads from these examples, as in training."""
    states = cast("nn.Sequential", network[DEEP - 1])[:2](network[: DEEP - 1](x))
    return states.mean(0), states.std(0)


def train(network: nn.Sequential, x: Tensor, y: Tensor, rate: float, steps: int) -> tuple[list[float], float]:
    """The loss of each step of plain descent, and the drift: by how many deviations a step moves the inputs' means."""
    losses, drifts = list[float](), list[float]()
    network.train()
    mean, deviation = inputs(network, x[:256])
    for _ in range(steps):
        some = torch.randint(0, len(x), (BATCH,))
        network.zero_grad()
        loss = F.cross_entropy(network(x[some]), y[some])
        loss.backward()
        with torch.no_grad():
            for p in network.parameters():
                assert p.grad is not None
                p -= rate * p.grad
        moved, spread = inputs(network, x[:256])
        drifts.append(((moved - mean).abs() / (deviation + 1e-6)).mean().item())
        losses.append(loss.item())
        mean, deviation = moved, spread
    return losses, sum(drifts) / len(drifts)


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Steps to learn, drift, and accuracy on seen and new digits, by norm and rate; BatchNorm early in its training."""
    x, y = digits()
    new = x[TRAINED:], y[TRAINED:]
    for norm in NORMS:
        for rate in RATES:
            network = build(norm)
            losses, drift = train(network, x[:TRAINED], y[:TRAINED], rate, 150 if quick else 400)
            right = accuracy(network, *new)
            values = {"accuracy": right, "rate that works": rate if right >= WORKS else RATES[0] / 10}
            yield Row(
                {"norm": norm, "rate": rate}, values | {"steps to learn": steps_to(LEARNED, losses), "drift": drift}
            )
    for steps in (5, 20, 80):
        network = build("BatchNorm")
        train(network, x[:TRAINED], y[:TRAINED], 0.1, steps)
        averages = accuracy(network, *new)
        batch = (network.train()(new[0]).argmax(-1) == new[1]).double().mean().item()
        yield Row({"norm": "BatchNorm", "steps": float(steps)}, {"running averages": averages, "its batch": batch})
