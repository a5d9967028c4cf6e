"""Layers that mix positions by a state of fixed size in place of attention."""

from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.model.cache import State
from clearhead.model.layout import Layout
from clearhead.model.mode import Part
from clearhead.model.ops import Steps, parameters


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
