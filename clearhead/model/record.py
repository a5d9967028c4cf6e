"""How each value of a network comes from others, by address: the ops of the network of a config."""

from functools import lru_cache

import torch
from torch import Tensor, nn

from clearhead import config as c
from clearhead.model.ops import KINDS, Call, Mask, Op, Steps
from clearhead.model.shapes import unallocated


@lru_cache(maxsize=32)
def _steps_of(config: c.ModelConfig) -> Steps:
    steps = Steps()
    unallocated(config).steps(steps)
    return steps


def ops_of(config: c.ModelConfig) -> tuple[Op, ...]:
    """Every step from ids or pixels to logits, in the order in which they run."""
    return tuple(_steps_of(config).ops)


def masks_of(config: c.ModelConfig) -> dict[str, Mask]:
    """By the names that the ops use."""
    return dict(_steps_of(config).masks)


@torch.no_grad()
def evaluated(op: Op, inputs: list[Tensor], network: nn.Module, mask: Mask | None = None) -> Tensor:
    """What an op makes of these values of one sequence, with the network's weights in float32; a mask's op needs it."""
    weights = [network.get_parameter(name).detach().float().cpu() for name in op.weights]
    return KINDS[op.op].evaluate(Call(op, inputs, weights, mask))
