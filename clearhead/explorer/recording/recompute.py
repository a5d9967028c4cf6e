"""Every recorded value again, from the recorded values that its op names: what the page shows is what was done."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearhead.model.ops import Mask, Op
from clearhead.model.record import evaluated


@dataclass(frozen=True)
class Deviation:
    """How far a value made again is from the one that was recorded."""

    most: float
    """The largest absolute difference."""
    relative: float
    """That, as a share of the largest number of its tensor."""


@torch.no_grad()
def differences(
    ops: tuple[Op, ...],
    values: Mapping[str, Tensor],
    *,
    by_hand: frozenset[str],
    numbers: Mapping[str, Tensor],
    masks: Mapping[str, Mask],
    network: nn.Module,
) -> dict[str, Deviation]:
    """By address, of each recorded value that an op made. A value set by hand is an input like any other."""
    made: dict[str, Tensor] = dict(numbers)
    found: dict[str, Deviation] = {}
    for op in ops:
        if op.out in values and op.out in by_hand:
            continue
        inputs = [values[name] if name in values else made[name] for name in op.inputs]
        result = evaluated(op, inputs, network, masks.get(op.how))
        if op.out not in values:
            made[op.out] = result
            continue
        recorded = values[op.out]
        if recorded.shape != result.shape:
            raise ValueError(f"{op.out}: {op.op} makes {tuple(result.shape)}, got {tuple(recorded.shape)}")
        most = float((result - recorded).abs().max())
        found[op.out] = Deviation(most, most / max(float(recorded.abs().max()), 1e-30))
    return found
