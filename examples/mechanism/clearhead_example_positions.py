"""Positions of another package: bias[h, t, s] = -slope_h log(1 + |t - s|), with learned slopes   (Chi et al. 2022)."""

from typing import Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from clearhead.config import AnyWidth, NoEnd, StackConfig
from clearhead.model.attention_bias import NotAdded, NotRelated, NotTurned
from clearhead.model.ops import KINDS, Kind, Steps


class LogDistance(NoEnd, AnyWidth):
    """A key counts less, the farther it is from the query, by the logarithm of their distance."""

    builds = "clearhead_example_positions:LogDistanceEncoding"
    label, acts_on = "logarithm of the distance", "scores"
    kind: Literal["clearhead-example-mechanism.log_distance"] = "clearhead-example-mechanism.log_distance"
    slope: PositiveFloat = 1.0
    """The slope of each head before training."""


class LogDistanceEncoding(NotAdded, NotTurned, NotRelated):
    """bias = -slope_h log(1 + |t - s|)"""

    learns_bias = True

    def __init__(self, config: LogDistance, stack: StackConfig, *, causal: bool) -> None:
        super().__init__()
        self.slopes = nn.Parameter(config.slope * torch.ones(stack.n_heads))

    def score_bias(self, query: Tensor, key: Tensor) -> Tensor:
        distance = (query[:, None, :, None] - key[:, None, None, :]).abs()
        return -self.slopes[:, None, None] * distance.log1p()

    def score_bias_steps(self, to: Steps, out: str, path: str, numbers: str) -> str:
        return to.do(out, "log_distance", numbers, weights=(f"{path}.slopes",))


KINDS["log_distance"] = Kind(
    lambda call: -call.w[0][:, None, None] * (call.x[0] - call.x[0][:, None]).abs().log1p(),
    shape=lambda call: (*call.w[0], *call.x[0].shape, *call.x[0].shape),
)
