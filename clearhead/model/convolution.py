"""Convolutions over time. Some make vectors from samples; one makes positions from the moments around each one."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.config import Convolution
from clearhead.model.feedforward import activation_function, activation_steps
from clearhead.model.mode import Part
from clearhead.model.norm import ChannelNorm, LayerNorm
from clearhead.model.ops import KINDS, Call, Deriving, Kind, Sized, Sizes, Steps, parameters
from clearhead.trace import tap


class ConvolutionLayer(Part):
    """act(Norm(sum_k W_k x_{step t + k} + b)), all W_k in one matrix   (Baevski et al. 2020, 2)"""

    def __init__(
        self, reads: Convolution, channels: int, *, bias: bool, norm: ChannelNorm | LayerNorm | None, activation: str
    ) -> None:
        """`channels` is the number of channels of the input."""
        super().__init__()
        self.step, self.width, self.activation = reads.step, reads.width, activation
        self.weight = nn.Parameter(nn.init.kaiming_normal_(torch.empty(reads.channels, channels * reads.width)))
        self.bias = nn.Parameter(torch.zeros(reads.channels)) if bias else None
        self.norm = norm

    def forward(self, x: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """b x c -> b x c, fewer vectors of another width; `lengths` (b) are those of the sounds, before and after."""
        x = F.conv1d(x.mT, self.weight.unflatten(1, (-1, self.width)), self.bias, self.step).mT
        if lengths is not None:
            lengths = shorter(lengths, self.width, self.step)
        if isinstance(self.norm, ChannelNorm):
            x = self.norm(x, None if lengths is None else before(lengths, x.shape[1]))
        elif self.norm is not None:
            x = self.norm(x)
        return tap(self, "out", activation_function(self.activation)(x), "b x c"), lengths

    def steps(self, to: Steps, path: str, x: str) -> str:
        """Lists the ops of `forward`; returns the address of the result."""
        with to.inside(path):
            by: dict[str, float] = {"width": self.width, "step": self.step, "before": 0, "after": 0, "groups": 1}
            x = to.do(f"{path}.linear", "convolve", x, weights=parameters(self, path), by=by)
        x = x if self.norm is None else self.norm.steps(to, f"{path}.norm", x)
        with to.inside(path):
            return activation_steps(to, f"{path}.out", x, self.activation)


class Around(Part, Deriving):
    """act(sum_k W_k x_{t + k - width / 2} + b), W_k = size_k direction_k / |direction_k|   (Baevski et al. 2020, 2;
    Salimans and Kingma 2016)

    Each group of components is computed from the same group of x. Beyond the ends, x is 0.
    """

    def __init__(self, d_model: int, *, width: int, groups: int, activation: str) -> None:
        super().__init__()
        self.width, self.groups, self.activation = width, groups, activation
        self.direction = nn.Parameter(nn.init.normal_(torch.empty(d_model, d_model // groups, width), std=0.02))
        self.size = nn.Parameter(self.direction.detach().norm(dim=(0, 1), keepdim=True))
        self.bias = nn.Parameter(torch.zeros(d_model))

    @property
    def kernel(self) -> Tensor:
        """d (c k): the matrix by which it multiplies."""
        return (self.direction * (self.size / self.direction.norm(dim=(0, 1), keepdim=True))).flatten(1)

    @property
    def derived(self) -> dict[str, Tensor]:
        return {"kernel": self.kernel}

    def forward(self, x: Tensor) -> Tensor:
        """b t d -> b t d; padding must be 0."""
        padded, kernel = F.pad(x.mT, (self.width // 2, (self.width - 1) // 2)), self.kernel.view_as(self.direction)
        return activation_function(self.activation)(F.conv1d(padded, kernel, self.bias, groups=self.groups).mT)

    def steps(self, to: Steps, out: str, path: str, x: str) -> str:
        """Lists the ops of `forward`; returns `out`."""
        with to.inside(path):
            by: dict[str, float] = {"width": self.width, "step": 1, "groups": self.groups}
            by |= {"before": self.width // 2, "after": (self.width - 1) // 2}
            x = to.do(f"{path}.linear", "convolve", x, weights=(f"{path}.kernel", f"{path}.bias"), by=by)
            return activation_steps(to, out, x, self.activation)


def shorter(lengths: Tensor, width: int, step: int) -> Tensor:
    """The numbers of vectors that a convolution makes of `lengths` vectors."""
    return ((lengths - width) // step + 1).clamp(min=0)


def before(lengths: Tensor, n: int) -> Tensor:
    """b -> b n: which of n cells come before the end."""
    return torch.arange(n, device=lengths.device) < lengths[:, None]


def _convolve(call: Call) -> Tensor:
    by = {name: int(value) for name, value in call.op.by.items()}
    x, kernel = F.pad(call.x[0].mT[None], (by["before"], by["after"])), call.w[0].unflatten(1, (-1, by["width"]))
    return F.conv1d(x, kernel, *call.w[1:2], stride=by["step"], groups=by["groups"])[0].mT


def _convolved(call: Sized) -> tuple[int, ...]:
    by = {name: int(value) for name, value in call.op.by.items()}
    return (call.x[0].shape[0] + by["before"] + by["after"] - by["width"]) // by["step"] + 1, call.w[0][0]


def _read(call: Sized) -> tuple[Sizes, ...]:
    """The input of the convolution, with the zeros beyond the ends."""
    (n, width), beyond = call.x[0].shape, int(call.op.by["before"] + call.op.by["after"])
    return (replace(call.x[0], shape=(n + beyond, width)),) if beyond else (call.x[0],)


def _flops(call: Sized) -> int:
    return 2 * call.out.shape[0] * call.w[0][0] * call.w[0][1]


KINDS["convolve"] = Kind(_convolve, _convolved, _read, _flops)
