"""Each vector brought to one scale: LayerNorm and RMSNorm."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.config import StackConfig
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


def build_norm(config: StackConfig, width: int | None = None, *, axes: str = "b t d") -> LayerNorm | RMSNorm:
    """The norm a stack's config asks for, over d_model or the given width."""
    width = width or config.d_model
    if config.norm == "rms":
        return RMSNorm(width, eps=config.norm_eps, axes=axes)
    return LayerNorm(width, eps=config.norm_eps, bias=config.has_norm_bias, axes=axes)
