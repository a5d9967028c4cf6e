"""Norms, which bring each vector to one scale: LayerNorm and RMSNorm."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.config import StackConfig
from clearhead.model.ops import KINDS, Call, Kind, Sized, Sizes, Steps, as_read, its_result, parameters
from clearhead.trace import tap, tracing


class LayerNorm(nn.Module):
    """(x - mean) * rstd * weight + bias,  rstd = 1 / sqrt(var + eps)   (Ba et al. 2016)"""

    def __init__(self, width: int, *, eps: float, bias: bool, axes: str = "b t d") -> None:
        super().__init__()
        self.eps, self.axes = eps, axes
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        if not tracing():
            return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)
        mean = tap(self, "mean", x.mean(-1, keepdim=True), self.axes)
        variance = (x - mean).square().mean(-1, keepdim=True)
        rstd = tap(self, "rstd", (variance + self.eps).rsqrt(), self.axes)
        out = (x - mean) * rstd * self.weight
        return tap(self, "out", out if self.bias is None else out + self.bias, self.axes)

    def steps(self, to: Steps, path: str, x: str) -> str:
        """List the ops of `forward`; returns the address of the result."""
        with to.inside(path):
            mean = to.do(f"{path}.mean", "mean", x)
            rstd = to.do(f"{path}.rstd", "rstd", x, mean, by={"eps": self.eps})
            return to.do(f"{path}.out", "norm", x, mean, rstd, weights=parameters(self, path))


class RMSNorm(nn.Module):
    """x * rstd * weight,  rstd = 1 / sqrt(mean(x^2) + eps)   (Zhang and Sennrich 2019)"""

    def __init__(self, width: int, *, eps: float, axes: str = "b t d") -> None:
        super().__init__()
        self.eps, self.axes = eps, axes
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        if not tracing():
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        rstd = tap(self, "rstd", (x.square().mean(-1, keepdim=True) + self.eps).rsqrt(), self.axes)
        return tap(self, "out", x * rstd * self.weight, self.axes)

    def steps(self, to: Steps, path: str, x: str) -> str:
        """List the ops of `forward`; returns the address of the result."""
        with to.inside(path):
            rstd = to.do(f"{path}.rstd", "rstd", x, by={"eps": self.eps})
            return to.do(f"{path}.out", "norm", x, rstd, weights=parameters(self, path))


Norm = LayerNorm | RMSNorm


def _rstd(call: Call) -> Tensor:
    centred = call.x[0] - call.x[1] if len(call.x) > 1 else call.x[0]
    return (centred.square().mean(-1, keepdim=True) + call.op.by["eps"]).rsqrt()


def _norm(call: Call) -> Tensor:
    centred = call.x[0] - call.x[1] if len(call.x) > 2 else call.x[0]
    out = centred * call.x[-1] * call.w[0]
    return out + call.w[1] if len(call.w) > 1 else out


def _saved(call: Sized) -> tuple[Sizes, ...]:
    """What autograd saves: LayerNorm's input; for RMSNorm, without a CPU kernel, also input * rstd in float32."""
    x = call.x[0]
    if len(call.x) > 2:
        return (x,)
    return x if x.width == 4 else Sizes(x.shape), Sizes(x.shape)


def _one_a_vector(call: Sized) -> tuple[int, ...]:
    return *call.x[0].shape[:-1], 1


KINDS |= {
    "mean": Kind(lambda call: call.x[0].mean(-1, keepdim=True), _one_a_vector, its_result, width=lambda _: 4),
    "rstd": Kind(_rstd, _one_a_vector, its_result, width=lambda _: 4),
    "norm": Kind(_norm, saves=_saved, width=as_read),
}


def build_norm(config: StackConfig, width: int | None = None, *, axes: str = "b t d") -> Norm:
    """The norm for a stack's config, over d_model or the given width."""
    width = width or config.d_model
    if config.norm == "rms":
        return RMSNorm(width, eps=config.norm_eps, axes=axes)
    return LayerNorm(width, eps=config.norm_eps, bias=config.has_norm_bias, axes=axes)
