"""The ops of the network of a config: how each value follows from others, by address."""

from functools import lru_cache

import torch
from torch import Tensor, nn

from clearhead import config as c
from clearhead.model.linear import parameter
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
    """The masks by the names that the ops use."""
    return dict(_steps_of(config).masks)


@torch.no_grad()
def evaluated(op: Op, inputs: list[Tensor], network: nn.Module, mask: Mask | None = None) -> Tensor:
    """The result of an op for these inputs of one sequence, with float32 weights. Ops that mask need `mask`."""
    weights = [parameter(network, name).detach().float().cpu() for name in op.weights]
    return KINDS[op.op].evaluate(Call(op, inputs, weights, mask))
