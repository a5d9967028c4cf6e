"""BatchNorm mixes examples: padding shifts it and a batch of one empties it. LayerNorm sees one position."""

from collections.abc import Iterator

import torch
from torch import Tensor

from clearhead.model.norm import LayerNorm
from clearhead_lab.experiment import Row
from clearhead_lab.replacements import BatchNorm

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
    """The change of real positions when others become padding, and what is left of a batch of one vector."""
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
