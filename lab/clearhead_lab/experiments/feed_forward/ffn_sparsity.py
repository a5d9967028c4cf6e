"""Counts the active units of the feed-forward, and compares those of different words."""

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Transformer
from clearhead.trace import trace
from clearhead_lab.experiment import Row
from clearhead_lab.learning import decoder, learn
from clearhead_lab.texts import N_CHARACTERS, manual

LENGTH = 64
ACTIVATIONS: tuple[Literal["relu", "gelu"], ...] = ("relu", "gelu")


@torch.no_grad()
def seen_in(network: Transformer) -> Iterator[dict[str, float]]:
    """For each block: the share of active units, what two characters share of theirs, and what the others give."""
    with trace(network, without=("heads",)) as seen:
        network(manual().valid_batch(16, LENGTH)[0])
    for i in range(len(network.last_stack.blocks)):
        pre = seen[f"decoder.blocks.{i}.ffn.pre"].flatten(0, 1)
        post = seen[f"decoder.blocks.{i}.ffn.post"].flatten(0, 1).abs()
        active = pre > 0
        yield {
            "active": active.double().mean().item(),
            "shared": shared(active),
            "never active": (~active.any(0)).double().mean().item(),
            "silent over active": (post[~active].mean() / post[active].mean()).item(),
        }


def shared(active: Tensor) -> float:
    """n f -> the units active for both of two random rows over those active for either, the mean."""
    other = active[torch.randperm(len(active))]
    return ((active & other).sum(1) / (active | other).sum(1).clamp(min=1)).mean().item()


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Active units before, during and after training on the manual of Python, by block."""
    block = 120 if quick else 300
    for activation in ACTIVATIONS:
        positions = c.Learned(max_length=LENGTH)
        network = decoder(N_CHARACTERS, d_model=64, positions=positions, activation=activation)
        for steps in (0, block, 2 * block):
            if steps:
                learn(network, lambda: manual().batch(16, LENGTH), steps=block, warmup=20 if steps == block else 0)
            when = "trained" if steps == 2 * block else "new" if steps == 0 else "half trained"
            for i, values in enumerate(seen_in(network)):
                yield Row({"activation": activation, "network": when, "block": i}, values)
