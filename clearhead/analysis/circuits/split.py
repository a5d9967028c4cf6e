"""Features as parts of a circuit: they split what is written at their site, as heads split what an attention writes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from clearhead.analysis.features import Features
from clearhead.brief import brief

N_FEATURES = 64
"""Features of a site that are nodes of a graph, at most: those that matter most to the metric."""


@dataclass(frozen=True, eq=False)
class Split:
    """value = sum_i f_i W_dec[i] + error: the value at `features.writes`, in parts that add up to it exactly."""

    __repr__ = brief

    features: Features
    chosen: tuple[int, ...] = ()
    """The features that are parts of their own."""
    has_others: bool = True
    """Whether other features are active. Together they are one part more."""

    @property
    def address(self) -> str:
        """The address of the features."""
        return self.features.address

    @property
    def writes(self) -> str:
        """The address of the value that is split."""
        return self.features.writes

    @property
    def shares(self) -> "list[Share]":
        """The chosen features, the others if there are any, and what none of them explains."""
        others = [Share(self, "others")] if self.has_others else []
        return [*(Share(self, i) for i in self.chosen), *others, Share(self, "error")]

    def unchosen(self, active: Tensor) -> Tensor:
        """... f -> ... f: 0 for each chosen feature."""
        rest = active.clone()
        rest[..., list(self.chosen)] = 0
        return rest

    def slopes(self, gradient: Tensor) -> Tensor:
        """... d -> ... f: the gradient at each feature, from that at the value."""
        return gradient @ self.features.like(gradient).w_dec.mT

    def through(self, active: Tensor, stream: Tensor, gradient: Tensor, whole: Tensor) -> Tensor:
        """r b t d: the gradient at a stream through each share alone.

        `active` are the features as they follow from the stream, `gradient` is that at the value, and `whole` that at
        the stream through the whole value.
        """
        slopes = self.slopes(gradient)
        each = torch.diag_embed(slopes[..., list(self.chosen)]).movedim(-2, 0)
        rest = _back(active, stream, self.unchosen(slopes))
        with torch.enable_grad():
            some = active[..., list(self.chosen)]
        found = _back(some, stream, each, batched=True) if self.chosen else whole.new_zeros(0, *whole.shape)
        ends = [rest[None]] * self.has_others
        return torch.cat([found, *ends, (whole - found.sum(0) - rest)[None]])


@dataclass(frozen=True)
class Share:
    """One feature's part of a value, that of all other features, or the error: what no feature explains."""

    split: Split
    which: int | Literal["others", "error"]

    def __str__(self) -> str:
        return f"{self.split.address}{f'[f={self.which}]' if isinstance(self.which, int) else f'.{self.which}'}"

    def of(self, values: Mapping[str, Tensor]) -> Tensor:
        """... b t d: the part, from the value and the features at their addresses."""
        features, active = self.split.features, values[self.split.address]
        if self.which == "error":
            return values[self.split.writes] - features.written(active)
        if self.which == "others":
            return features.written(self.split.unchosen(active))
        return active[..., self.which, None] * features.like(active).w_dec[self.which]


def chosen(split: Split, lost: Tensor, active: Tensor, gradients: list[Tensor], n: int) -> Split:
    """The split with the n active features whose change matters most to the metric, to first order.

    `lost` is clean - corrupt of the features, b t f, `active` says which are active at a real position, f, and
    `gradients` are those at the value; the largest estimate of each counts.
    """
    estimates = [(lost * split.slopes(gradient)).sum((0, 1)).abs() for gradient in gradients]
    scores = torch.stack(estimates).amax(0).masked_fill(~active, -1)
    total = int(active.sum())
    best = scores.topk(min(n, total)).indices.sort().values
    return Split(split.features, tuple(best.tolist()), total > n)


def _back(of: Tensor, at: Tensor, gradient: Tensor, *, batched: bool = False) -> Tensor:
    found = torch.autograd.grad(
        of, [at], gradient, retain_graph=True, allow_unused=True, is_grads_batched=batched, materialize_grads=True
    )
    return found[0]
