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
from clearhead.model.ops import KINDS, Call, Deriving, Kind, Sized, Steps, parameters
from clearhead.trace import changed, tap


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
        return _convolve(x, self.weight, self.bias, layout, before)

    def steps(self, to: Steps, out: str, path: str, x: str) -> str:
        """Lists the ops of `forward`; returns `out`."""
        return _convolve_steps(to, out, self.weight, parameters(self, path), x)


class TokenShift(Part, Deriving):
    """y_t = mix x_t + (1 - mix) x_{t-1}: a causal convolution whose two weights add up to 1   (Peng et al. 2023)"""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.linspace(0.0, 1.0, width))

    @property
    def weight(self) -> Tensor:
        """d 2: that of x_t is the last."""
        return torch.stack([1 - self.mix, self.mix], 1)

    @property
    def derived(self) -> dict[str, Tensor]:
        return {"weight": self.weight}

    def forward(self, x: Tensor, layout: Layout, before: Tensor | None) -> tuple[Tensor, Tensor]:
        """b t d -> b t d, and the last position, b 1 d, which is `before` for what comes next."""
        if before is not None and x.shape[1] == 1 and layout.valid is None:
            return before.lerp(x, self.mix), x
        return _convolve(x, self.weight, None, layout, before)

    def steps(self, to: Steps, out: str, path: str, x: str) -> str:
        """Lists the ops of `forward`; returns `out`."""
        return _convolve_steps(to, out, self.weight, (f"{path}.weight",), x)


def _convolve(
    x: Tensor, weight: Tensor, bias: Tensor | None, layout: Layout, before: Tensor | None
) -> tuple[Tensor, Tensor]:
    (b, t, channels), n = x.shape, weight.shape[1] - 1
    whole = torch.cat([x.new_zeros(b, n, channels) if before is None else before, x], 1)
    if layout.valid is None and layout.documents is None:
        if t == 1 and not torch.is_grad_enabled():  # The kernel takes longer for one position than a product.
            made = (whole * weight.mT).sum(1, keepdim=True)
            return made if bias is None else made + bias, whole[:, t:]
        return F.conv1d(whole.mT, weight[:, None], bias, groups=channels).mT, whole[:, t:]
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
    made = torch.einsum("btkc,ck->btc", seen, weight)
    ends = valid.sum(1, keepdim=True) + window[:-1]
    return made if bias is None else made + bias, _at(whole, cells.gather(1, ends))


def _convolve_steps(to: Steps, out: str, weight: Tensor, weights: tuple[str, ...], x: str) -> str:
    channels, width = weight.shape
    by: dict[str, float] = {"width": width, "step": 1, "groups": channels, "before": width - 1, "after": 0}
    by["apart"] = 1
    return to.do(out, "convolve", x, weights=weights, by=by)


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
    return share(decays(decay)).tril()


def share(total: Tensor) -> Tensor:
    """exp(total) of a sum of decays, which it first limits in place, far beyond rounding.

    A CPU takes 20 times longer for subnormal results. Gradients know no limit, so that autograd keeps no more.
    """
    total.detach().clamp_(min=0.9 * math.log(torch.finfo(total.dtype).tiny))
    return total.exp()


def decays(decay: Tensor) -> Tensor:
    """... t -> ... t s: the sum of decays after s up to t."""
    return decay[..., None].expand(*decay.shape, decay.shape[-1]).tril(-1).cumsum(-2)


def negative_exp(log: Tensor) -> Tensor:
    """-exp(log), in at least float32: a rate of forgetting."""
    return -log.to(torch.promote_types(log.dtype, torch.float32)).exp()


def edited_states(
    owner: nn.Module, first: Tensor, step: Callable[[int, Tensor], Tensor], length: int
) -> tuple[Tensor, Tensor]:
    """b h t k ...: the states after each position, and the same after edits, each of which acts on those that follow.

    `step` makes the state after a position of the one before it, `first` before all.
    """

    def states(start: int, state: Tensor) -> list[Tensor]:
        made: list[Tensor] = []
        for t in range(start, length):
            state = step(t, state)
            made.append(state)
        return made

    t, axes, before = 0, "b h t k j"[: 2 * first.ndim + 1], torch.stack(states(0, first), 2)
    plain = before
    while True:
        after = changed(owner, "state", before, axes)
        new = (after != before).transpose(0, 2).flatten(1).any(1)[t:].nonzero()
        if not len(new):
            return plain, tap(owner, "state", before, axes)
        t += int(new[0]) + 1
        later = states(t, after[:, :, t - 1])
        before = torch.cat([before[:, :, :t], *(one[:, :, None] for one in later)], 2)


def softplus_steps(to: Steps, path: str, x: str, linear: nn.Module, factor: float | None = None) -> str:
    """Lists the ops of softplus(factor W x + bias) at `path`.step, with its bias beside it; returns that address."""
    at = f"{path}.step"
    x = x if factor is None or to.training else to.do(f"{at}.scaled", "scale", x, by={"factor": factor})
    step = to.do(f"{at}.linear", "linear", x, weights=(*parameters(linear, at), f"{at}_bias"))
    return to.do(at, "activation", step, how="softplus")


def weights_change(owner: nn.Module, plain: Tensor, x: Tensor, documents: Tensor | None) -> Tensor:
    """b t d: what edits of the weights, the attention that each channel implies, change in what is read of x, b t d."""
    if documents is not None:
        plain = plain.masked_fill(documents[:, None, :, None] != documents[:, None, None, :], 0.0)
    change = tap(owner, "weights", plain, "b h t s") - plain
    return (change @ x.mT[..., None])[..., 0].mT


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
