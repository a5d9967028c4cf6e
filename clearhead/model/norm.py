"""Norms, which bring each vector to one scale: LayerNorm and RMSNorm."""

from abc import abstractmethod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.config import NormConfig, StackConfig
from clearhead.errors import UserError
from clearhead.model.mode import Part
from clearhead.model.ops import KINDS, Call, Deriving, Kind, Sized, Sizes, Steps, its_result, parameters
from clearhead.trace import tap, tracing


class Norm(Part, Deriving):
    """centred(x) * rstd * gain + bias: linear in x for a given rstd.

    `by` says what the gain is: the weight, 1 + the weight, which then starts at 0, or 1.
    """

    def __init__(self, width: int, *, eps: float, bias: bool = False, axes: str = "b t d", by: str = "weight") -> None:
        super().__init__()
        self.width, self.eps, self.axes, self.plus_one = width, eps, axes, by == "one_plus_weight"
        first = torch.zeros(width) if self.plus_one else torch.ones(width)
        self.weight = None if by == "none" else nn.Parameter(first)
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def __setattr__(self, name: str, value: Any) -> None:
        """Raises UserError for a name of what follows from the weight."""
        if name in ("gain", "derived"):
            at = f"{type(self).__name__}.{name}"
            raise UserError(f"{at}: expected no such field, as a norm computes it from `weight`; try self.my_{name}")
        super().__setattr__(name, value)

    @abstractmethod
    def centred(self, x: Tensor) -> Tensor:
        """The vectors, ... d, after the norm's subtraction."""

    @abstractmethod
    def statistics(self, to: Steps, path: str, x: str) -> tuple[str, ...]:
        """Lists the ops of the mean, if the norm takes it off, and of rstd; returns their addresses."""

    def steps(self, to: Steps, path: str, x: str) -> str:
        """Lists the ops of `forward`; returns the address of the result."""
        with to.inside(path):
            how = PLAIN if self.weight is None else ""
            return to.do(f"{path}.out", "norm", x, *self.statistics(to, path, x), weights=_weights(self, path), how=how)

    @property
    def gain(self) -> Tensor:
        """d: the factor of the norm."""
        if self.weight is None:
            return torch.ones(self.width)
        return _one_plus(self.weight) if self.plus_one else self.weight

    @property
    def derived(self) -> dict[str, Tensor]:
        return {"gain": self.gain} if self.plus_one or self.weight is None else {}


class LayerNorm(Norm):
    """(x - mean) * rstd * gain + bias,  rstd = 1 / sqrt(var + eps)   (Ba et al. 2016)"""

    def centred(self, x: Tensor) -> Tensor:
        return x - x.mean(-1, keepdim=True)

    def forward(self, x: Tensor) -> Tensor:
        if not tracing():
            # The kernel takes gain and bias of one type, which may be wider than that of x.
            gain = None if self.weight is None else self.gain
            bias = None if self.bias is None or gain is None else self.bias.to(gain.dtype)
            return tap(self, "out", F.layer_norm(x, (self.width,), gain, bias, self.eps), self.axes)
        mean = tap(self, "mean", x.mean(-1, keepdim=True), self.axes)
        variance = (x - mean).square().mean(-1, keepdim=True)
        rstd = tap(self, "rstd", (variance + self.eps).rsqrt(), self.axes)
        out = (x - mean) * rstd * self.gain.to(x.device)
        return tap(self, "out", out if self.bias is None else out + self.bias, self.axes)

    def statistics(self, to: Steps, path: str, x: str) -> tuple[str, ...]:
        mean = to.do(f"{path}.mean", "mean", x)
        return mean, to.do(f"{path}.rstd", "rstd", x, mean, by={"eps": self.eps})


class RMSNorm(Norm):
    """x * rstd * gain,  rstd = 1 / sqrt(mean(x^2) + eps)   (Zhang and Sennrich 2019)"""

    def centred(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        if not tracing():
            # One type, of at least float32 with `plus_one`: for mixed types the kernel is slower, and warns.
            gain = None if self.weight is None else self.gain
            wide = x.to(gain.dtype) if self.plus_one and gain is not None else x
            out = F.rms_norm(wide, (self.width,), gain, self.eps)
            return tap(self, "out", out.to(x.dtype) if self.plus_one else out, self.axes)
        rstd = tap(self, "rstd", (x.square().mean(-1, keepdim=True) + self.eps).rsqrt(), self.axes)
        return tap(self, "out", x * rstd * self.gain.to(x.device), self.axes)

    def statistics(self, to: Steps, path: str, x: str) -> tuple[str, ...]:
        return (to.do(f"{path}.rstd", "rstd", x, by={"eps": self.eps}),)


class ChannelNorm(Part):
    """(x - mean) * rstd * weight + bias for each channel, over the moments of its sound   (Wu and He 2018, a group norm
    with a group for each channel)
    """

    def __init__(self, width: int, *, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """b x c -> b x c; `valid` is b x: the moments that count."""
        if valid is None and not tracing():
            return tap(self, "out", F.group_norm(x.mT, x.shape[-1], self.weight, self.bias, self.eps).mT, "b x c")
        share = torch.full_like(x[..., :1], 1 / x.shape[1])
        if valid is not None:
            share = (valid.to(x.dtype) / valid.sum(1, keepdim=True).clamp(min=1))[..., None]
        mean = tap(self, "mean", (x * share).sum(1, keepdim=True), "b x c")
        rstd = tap(self, "rstd", (((x - mean).square() * share).sum(1, keepdim=True) + self.eps).rsqrt(), "b x c")
        return tap(self, "out", (x - mean) * rstd * self.weight + self.bias, "b x c")

    def steps(self, to: Steps, path: str, x: str) -> str:
        """Lists the ops of `forward`; returns the address of the result."""
        with to.inside(path):
            mean = to.do(f"{path}.mean", "mean", x, how=COLUMNS)
            rstd = to.do(f"{path}.rstd", "rstd", x, mean, by={"eps": self.eps}, how=COLUMNS)
            return to.do(f"{path}.out", "norm", x, mean, rstd, weights=parameters(self, path), how=COLUMNS)


COLUMNS = "columns"
"""`how` of an op that normalises down the columns, not along the rows."""
PLAIN = "plain"
"""`how` of a norm without weights, whose gain is 1."""


def _one_plus(weight: Tensor) -> Tensor:
    """1 + weight in at least float32, because 16 bits have no numbers close to 1."""
    return 1 + weight.to(torch.promote_types(weight.dtype, torch.float32))


def _weights(norm: Norm, path: str) -> tuple[str, ...]:
    """The names of the gain and, if there is one, the bias."""
    gain, *bias = parameters(norm, path)
    return (f"{path}.gain" if norm.derived else gain, *bias)


def unit(x: Tensor, eps: float) -> Tensor:
    """x / sqrt(|x|^2 + eps): the vector of about length 1."""
    return x * (x.square().sum(-1, keepdim=True) + eps).rsqrt()


def _unit(call: Call) -> Tensor:
    eps = call.op.by.get("eps")
    return F.normalize(call.x[0], dim=-1) if eps is None else unit(call.x[0], eps)


def _mean(call: Call) -> Tensor:
    return call.x[0].mean(_axis(call), keepdim=True)


def _rstd(call: Call) -> Tensor:
    centred = call.x[0] - call.x[1] if len(call.x) > 1 else call.x[0]
    return (centred.square().mean(_axis(call), keepdim=True) + call.op.by["eps"]).rsqrt()


def _axis(call: Call | Sized) -> int:
    return -2 if call.op.how == COLUMNS else -1


def _norm(call: Call) -> Tensor:
    centred = call.x[0] - call.x[1] if len(call.x) > 2 else call.x[0]
    out = centred * call.x[-1] * call.w[0]
    return out + call.w[1] if len(call.w) > 1 else out


def _saved(call: Sized) -> tuple[Sizes, ...]:
    """Tensors that autograd saves: LayerNorm's input; for RMSNorm, which has no CPU kernel, also input * rstd."""
    x = call.x[0]
    if len(call.x) > 2 or call.op.how == PLAIN:
        return (x,)
    return x if x.width == 4 else Sizes(x.shape), Sizes(x.shape)


def _one_each(call: Sized) -> tuple[int, ...]:
    shape = [*call.x[0].shape]
    shape[_axis(call)] = 1
    return tuple(shape)


def _counted(call: Sized) -> int:
    """Bytes of a statistic: 4, or 0 for the rows of a table, whose statistics are too few to count."""
    return 4 if call.x[0].width else 0


KINDS |= {
    "mean": Kind(_mean, _one_each, its_result, width=_counted),
    "rstd": Kind(_rstd, _one_each, its_result, width=_counted),
    "unit": Kind(_unit, saves=lambda call: (call.x[0], Sizes(_one_each(call)))),
    "norm": Kind(_norm, saves=_saved, width=lambda call: call.x[0].width or 4),
}


def build_norm(config: StackConfig, width: int | None = None, *, axes: str = "b t d") -> Norm:
    """The norm for a stack's config, over d_model or the given width."""
    if isinstance(config.norm, NormConfig):
        return config.norm.build(width or config.d_model, axes=axes)
    width, by = width or config.d_model, config.norm_gain
    if config.norm == "rms":
        return RMSNorm(width, eps=config.norm_eps, axes=axes, by=by)
    return LayerNorm(width, eps=config.norm_eps, bias=config.has_norm_bias, axes=axes, by=by)
