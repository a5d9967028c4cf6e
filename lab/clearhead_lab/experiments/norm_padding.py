"""BatchNorm mixes examples: padding shifts it and a batch of one empties it. LayerNorm sees one position."""

from collections.abc import Iterator

import torch
from torch import Tensor

from clearhead.model.norm import LayerNorm
from clearhead_lab.batch_norm import BatchNorm
from clearhead_lab.experiment import Check, Experiment, Plot, Row

WIDTH, LENGTH = 32, 64


def batch_norm(x: Tensor) -> Tensor:
    """Each feature over all positions of the batch, as in training."""
    return BatchNorm(WIDTH)(x)


def layer_norm(x: Tensor) -> Tensor:
    """Each position over its features, by the engine."""
    return LayerNorm(WIDTH, eps=1e-5, bias=True)(x)


NORMS = {"BatchNorm": batch_norm, "LayerNorm": layer_norm}


@torch.no_grad()
def measure(_: int, quick: bool) -> Iterator[Row]:
    """How far real positions move when others become padding, and what a batch of one vector keeps."""
    x = torch.randn(4 if quick else 32, LENGTH, WIDTH)
    for mean in (0.0, 3.0):
        for share in (0.0, 0.25, 0.5, 0.75):
            real = round(LENGTH * (1 - share))
            padded = x + mean
            padded[:, real:] = 0.0
            for name, norm in NORMS.items():
                moved = norm(padded)[:, :real] - norm(x[:, :real] + mean)
                change = moved.square().mean().sqrt().item()
                yield Row({"norm": name, "mean": mean, "padding": share}, {"change": change})
    # PyTorch refuses a batch of one vector in training. Twice the same vector has its mean and its deviation.
    one = torch.randn(1, 1, WIDTH).expand(1, 2, WIDTH)
    for name, norm in NORMS.items():
        yield Row({"norm": name, "batch": "one vector"}, {"output": norm(one).square().mean().sqrt().item()})


EXPERIMENT = Experiment(
    name="norm-padding",
    claim="Padding distorts BatchNorm by lowering its mean, a batch of one empties it; LayerNorm feels neither.",
    source="documents 000 (17.2), 003 (08.4); Ba et al. 2016",
    measure=measure,
    checks=(
        Check(
            "LayerNorm, 75% padding: change",
            lambda f: f.at("change", norm="LayerNorm", padding=0.75),
            at_most=1e-6,
            otherwise="Padding changes what LayerNorm gives for real positions.",
        ),
        Check(
            "BatchNorm, mean 3, 50% padding: change",
            lambda f: f.at("change", norm="BatchNorm", mean=3.0, padding=0.5),
            at_least=0.3,
            otherwise="Padding changes what BatchNorm gives for real positions only a little.",
        ),
        Check(
            "BatchNorm, one vector: output",
            lambda f: f.at("output", norm="BatchNorm"),
            at_most=1e-6,
            otherwise="BatchNorm gives something for a batch of one vector.",
        ),
        Check(
            "LayerNorm, one vector: output",
            lambda f: f.at("output", norm="LayerNorm"),
            at_least=0.9,
            otherwise="LayerNorm gives nothing for a batch of one vector.",
        ),
        Check(
            "BatchNorm, mean 0, 50% padding: change",
            lambda f: f.at("change", norm="BatchNorm", mean=0.0, padding=0.5),
            at_most=0.1,
            role="limit",
            otherwise="The mean is not the only reason: where it is 0 and zeros leave it there, padding distorts"
            " BatchNorm by the deviation.",
        ),
    ),
    plot=Plot(x="padding", y="change", by="norm"),
)
