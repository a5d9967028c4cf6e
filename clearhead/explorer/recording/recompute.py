"""Evaluates every op again from the recorded values, which proves that the record describes the computation."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearhead.model.ops import Mask, Op
from clearhead.model.record import evaluated


@dataclass(frozen=True)
class Deviation:
    """The difference between a recorded value and the result of its op."""

    most: float
    """The largest absolute difference."""
    relative: float
    """The same as a share of the largest number of the tensor."""


@torch.no_grad()
def differences(
    ops: Iterable[Op],
    values: Mapping[str, Tensor],
    *,
    by_hand: frozenset[str],
    numbers: Mapping[str, Tensor],
    masks: Mapping[str, Mask],
    network: nn.Module,
) -> dict[str, Deviation]:
    """The differences by address. A value that an edit made counts as an input, and has none."""
    made: dict[str, Tensor] = dict(numbers)
    found: dict[str, Deviation] = {}
    ops = list(ops)
    last = {name: i for i, op in enumerate(ops) for name in op.inputs}
    for i, op in enumerate(ops):
        if op.out in values and op.out in by_hand:
            continue
        inputs = [values[name] if name in values else made[name] for name in op.inputs]
        result = evaluated(op, inputs, network, masks.get(op.how))
        for name in op.inputs:
            if last[name] == i:
                made.pop(name, None)
        if op.out not in values:
            made[op.out] = result
            continue
        recorded = values[op.out]
        if recorded.shape != result.shape:
            raise ValueError(f"{op.out}: {op.op} makes {tuple(result.shape)}, got {tuple(recorded.shape)}")
        most = float((result - recorded).abs().max())
        found[op.out] = Deviation(most, most / max(float(recorded.abs().max()), 1e-30))
    return found
