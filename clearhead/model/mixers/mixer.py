"""Layers that mix positions by a state of fixed size in place of attention."""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.model.cache import State
from clearhead.model.layout import Layout
from clearhead.model.mode import Part
from clearhead.model.ops import KINDS, Call, Kind, Sized, Steps, parameters


class Mixer(Part):
    """Mixes the positions up to each one. A step reads the position and a state, never the positions before."""

    n_kept: int
    """Numbers in the state of a sequence."""

    @abstractmethod
    def forward(self, x: Tensor, layout: Layout, *, state: State | None = None, onto: Layout | None = None) -> Tensor:
        """b t d (or packed m d) -> the same shape; with `onto`, made by `layout.only`, the cells of that layout.

        `state` is what the positions before have left. It is replaced by what these leave. Padding leaves nothing.
        """

    @abstractmethod
    def steps(self, to: Steps, path: str, x: str) -> str:
        """Lists the ops of `forward`; returns the address of the result."""


class CausalConvolution(Part):
    """y_t = sum_j w_j x_{t - j} + b, each component by itself. Before the first position, x is 0."""

    def __init__(self, channels: int, width: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.uniform_(torch.empty(channels, width), -(width**-0.5), width**-0.5))
        """c k: the weight of x_t is the last."""
        self.bias = nn.Parameter(torch.zeros(channels)) if bias else None

    def forward(self, x: Tensor, layout: Layout, before: Tensor | None) -> tuple[Tensor, Tensor]:
        """b t c -> b t c, and the last k - 1 positions, b k-1 c, which are `before` for what comes next."""
        (b, t, channels), n = x.shape, self.weight.shape[1] - 1
        whole = torch.cat([x.new_zeros(b, n, channels) if before is None else before, x], 1)
        if layout.valid is None and layout.documents is None:
            if t == 1 and not torch.is_grad_enabled():  # The kernel takes longer for one position than a product.
                made = (whole * self.weight.mT).sum(1, keepdim=True)
                return made if self.bias is None else made + self.bias, whole[:, t:]
            return F.conv1d(whole.mT, self.weight[:, None], self.bias, groups=channels).mT, whole[:, t:]
        valid = x.new_ones(b, n + t, dtype=torch.bool)
        if layout.valid is not None:
            valid[:, n:] = layout.valid
        cells = (~valid).byte().argsort(stable=True, dim=1)  # The valid ones in order, then the padding.
        window = torch.arange(-n, 1, device=x.device)
        rank = (valid.cumsum(1)[:, n:, None] - 1 + window).clamp(min=0).flatten(1)
        read = cells.gather(1, rank)
        seen = _at(whole, read).unflatten(1, (t, n + 1))
        if layout.documents is not None:
            documents = layout.documents.expand(b, t)
            same = F.pad(documents, (n, 0), value=-1).gather(1, read).view(b, t, n + 1) == documents[..., None]
            seen = seen * same[..., None]
        made = torch.einsum("btkc,ck->btc", seen, self.weight)
        ends = valid.sum(1, keepdim=True) + window[:-1]
        return made if self.bias is None else made + self.bias, _at(whole, cells.gather(1, ends))

    def steps(self, to: Steps, out: str, path: str, x: str) -> str:
        """Lists the ops of `forward`; returns `out`."""
        channels, width = self.weight.shape
        by: dict[str, float] = {"width": width, "step": 1, "groups": channels, "before": width - 1, "after": 0}
        by["apart"] = 1
        return to.do(out, "convolve", x, weights=parameters(self, path), by=by)


def _at(x: Tensor, cells: Tensor) -> Tensor:
    """b s c -> b n c: the rows at these cells, b n."""
    return x.gather(1, cells[..., None].expand(-1, -1, x.shape[2]))


class Recomputed(torch.autograd.Function):
    """A function of tensors, of which autograd keeps these alone: the backward pass computes it again."""

    @staticmethod
    def forward(ctx: Any, compute: Callable[..., Tensor], *given: Tensor) -> Tensor:  # pyrefly: ignore[bad-override]
        ctx.compute = compute
        ctx.save_for_backward(*given)
        return compute(*given)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        given = [value.detach().requires_grad_() for value in ctx.saved_tensors]
        with torch.enable_grad():
            y = ctx.compute(*given)
        return None, *torch.autograd.grad(y, given, gradients)


def kept_shares(decay: Tensor) -> Tensor:
    """... t -> ... t s: exp of the sum of decays after s up to t, the share of s that is left at t; 0 for a later s.

    Each sum is of its own terms: a difference of two sums would round.
    """
    t = decay.shape[-1]
    return share(decay[..., None].expand(*decay.shape, t).tril(-1).cumsum(-2)).tril()


def share(total: Tensor) -> Tensor:
    """exp(total) of a sum of decays, which it first limits in place, far beyond rounding.

    A CPU takes 20 times longer for subnormal results. Gradients know no limit, so that autograd keeps no more.
    """
    total.detach().clamp_(min=0.9 * math.log(torch.finfo(total.dtype).tiny))
    return total.exp()


def softplus_steps(to: Steps, path: str, x: str, linear: nn.Module, factor: float | None = None) -> str:
    """Lists the ops of softplus(factor W x + bias) at `path`.step, with its bias beside it; returns that address."""
    at = f"{path}.step"
    x = x if factor is None or to.training else to.do(f"{at}.scaled", "scale", x, by={"factor": factor})
    step = to.do(f"{at}.linear", "linear", x, weights=(*parameters(linear, at), f"{at}_bias"))
    return to.do(at, "activation", step, how="softplus")


# --- kinds of op -----------------------------------------------------------------------------------------------------


def _merge(call: Call) -> Tensor:
    return call.x[0].transpose(0, 1).flatten(1)


def _merged(call: Sized) -> tuple[int, ...]:
    heads, t, k = call.x[0].shape
    return t, heads * k


def _decay(call: Call) -> Tensor:
    """Scores, h t s, times what is left of s at t, by decays, t h, and if they are given by steps, s h."""
    scores, decays, *steps = call.x
    left = scores * kept_shares(decays.mT)
    return left * steps[0].mT[:, None] if steps else left


KINDS |= {
    "decay": Kind(_decay),
    "merge": Kind(_merge, _merged),
}
