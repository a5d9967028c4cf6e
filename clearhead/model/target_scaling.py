"""Regression: a head that learns its numbers in a unit near their deviation, and is saved in the user's.

A step of the optimizer has the same size whatever the numbers are. Labels around 1000 ± 200 are therefore learned as
about 4 ± 0.8, in units of 256. The unit is a power of two, so that changing to it and back loses no bit.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from torch import Tensor

from clearhead.model.heads import ClassificationHead
from clearhead.model.transformer import Transformer

BIAS = "head.output.bias"
PLACES = ("head.output.weight", BIAS)
LARGEST = 60
"""The largest exponent of a unit, so that no weight overflows."""


@dataclass(frozen=True)
class TargetScale:
    """The labels of a regression: their mean, and a power of two near their deviation."""

    mean: float = 0.0
    unit: float = 1.0

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """The mean and deviation of the training labels."""
        deviation = float(np.std(values))
        exponent = round(math.log2(deviation)) if deviation > 0 and math.isfinite(deviation) else 0
        return cls(float(np.mean(values)), 2.0 ** max(-LARGEST, min(LARGEST, exponent)))


UNSCALED = TargetScale()
"""For labels that are no numbers, or that the head learns without a unit of its own."""


def begin_at(network: Transformer, numbers: TargetScale) -> None:
    """Makes a new head, which says about 0 ± 1, say the mean ± 1 unit."""
    if numbers == UNSCALED:
        return
    _scale(network, numbers.unit)
    bias = dict(network.named_parameters()).get(BIAS)
    if bias is not None:
        bias.detach().fill_(numbers.mean)


def learn_in(network: Transformer, unit: float) -> None:
    """Makes the head learn in this unit. The outputs of the network stay the same."""
    if unit == 1.0:
        return
    assert isinstance(network.head, ClassificationHead)
    assert network.head.unit == 1.0
    _scale(network, 1 / unit)
    network.head.unit = unit


def as_saved(network: Transformer, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a network with the unit of its head in the weights."""
    return _times(tensors, _unit(network))


def as_learned(network: Transformer, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of `as_saved`: the tensors as the head learns them."""
    return _times(tensors, 1 / _unit(network))


def _scale(network: Transformer, factor: float) -> None:
    for name, parameter in network.named_parameters():
        if name in PLACES:
            parameter.detach().mul_(factor)


def _unit(network: Transformer) -> float:
    return network.head.unit if isinstance(network.head, ClassificationHead) else 1.0


def _times(tensors: Mapping[str, Tensor], factor: float) -> dict[str, Tensor]:
    return {name: t * factor if factor != 1.0 and name in PLACES else t for name, t in tensors.items()}


def settled(network: Transformer) -> Transformer:
    """The network, in place, with the unit of its head in the weights."""
    unit = _unit(network)
    if unit != 1.0:
        assert isinstance(network.head, ClassificationHead)
        _scale(network, unit)
        network.head.unit = 1.0
    return network
