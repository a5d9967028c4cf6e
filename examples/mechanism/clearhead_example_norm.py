"""A norm of another package: x / (mean |x|^p + eps)^(1/p) * weight   (Hoffer et al. 2018)."""

from typing import Literal

from pydantic import Field, PositiveFloat
from torch import Tensor

from clearhead.config import NormConfig
from clearhead.model.norm import Norm
from clearhead.model.ops import KINDS, Kind, Steps, its_result
from clearhead.trace import tap


class PNorm(NormConfig):
    """Divides each vector by its p-norm; p = 2 is RMSNorm."""

    builds = "clearhead_example_norm:PNormModule"
    kind: Literal["clearhead-example-mechanism.p_norm"] = "clearhead-example-mechanism.p_norm"
    p: float = Field(default=1.0, ge=1.0)
    eps: PositiveFloat = 1e-5


class PNormModule(Norm):
    """x * scale * weight,  scale = (mean |x|^p + eps)^(-1/p)"""

    def __init__(self, config: PNorm, width: int, *, axes: str) -> None:
        super().__init__(width, eps=config.eps, axes=axes)
        self.p = config.p

    def centred(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        scale = tap(self, "scale", inverse_norm(x, self.p, self.eps), self.axes)
        return tap(self, "out", x * scale * self.weight, self.axes)

    def statistics(self, to: Steps, path: str, x: str) -> tuple[str, ...]:
        return (to.do(f"{path}.scale", "inverse_p_norm", x, by={"p": self.p, "eps": self.eps}),)


def inverse_norm(x: Tensor, p: float, eps: float) -> Tensor:
    """... d -> ... 1: (mean |x|^p + eps)^(-1/p)"""
    return (x.abs().pow(p).mean(-1, keepdim=True) + eps).pow(-1 / p)


KINDS["inverse_p_norm"] = Kind(
    lambda call: inverse_norm(call.x[0], call.op.by["p"], call.op.by["eps"]),
    shape=lambda call: (*call.x[0].shape[:-1], 1),
    saves=its_result,
)
