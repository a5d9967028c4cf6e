"""The ops of the network of a config: how each value follows from others, by address."""

from functools import lru_cache

import torch
from torch import Tensor, nn

from clearhead import config as c
from clearhead.model.linear import parameter
from clearhead.model.ops import KINDS, Call, Mask, Op, Steps
from clearhead.model.shapes import unallocated

ROWS = 1 << 14
"""The most rows of a matrix that are float32 at a time."""


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
    kept = [parameter(network, name).detach() for name in op.weights]
    evaluate = KINDS[op.op].evaluate
    if op.op == "lookup":  # A table may be large, so only its rows become float32.
        return evaluate(Call(op, inputs, [weight.cpu() for weight in kept], mask)).float()
    if op.op == "linear" and len(kept[0]) > ROWS:
        pieces = zip(*(weight.split(ROWS) for weight in kept), strict=True)
        return torch.cat([evaluate(Call(op, inputs, [w.float().cpu() for w in piece], mask)) for piece in pieces], -1)
    return evaluate(Call(op, inputs, [weight.float().cpu() for weight in kept], mask))
