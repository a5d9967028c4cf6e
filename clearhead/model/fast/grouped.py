"""Weights rounded to 8 or 4 bits in groups, on any device, with gradients through them for adapters on top."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.config.adapter import Bits
from clearhead.model.linear import LinearMap, replace

GROUP = 32
"""Numbers of a row that share a scale."""
LARGEST = {8: 127, 4: 7}
"""The largest integer, by bits."""
SMALLER = {8: (1.0,), 4: (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)}
"""Factors on the scale that are tried. A smaller one cuts off the largest numbers, and rounds all others less."""


class GroupedLinear(LinearMap):
    """y = x W^T + b with W = s n: integers n, and for each group of numbers of a row a scale s.

    The largest number of a group becomes about the largest integer: of a few scales, each group has the one with the
    least squared error. Four-bit integers lie two in a byte. W is computed anew for each product, and again in the
    backward pass, so that it is never kept.
    """

    integers: Tensor
    scale: Tensor

    def __init__(self, linear: nn.Linear, bits: Bits) -> None:
        super().__init__(linear.in_features, linear.out_features, linear.bias)
        self.bits: Bits = bits
        self.rounded = f"int{bits}"
        integers, scale = rounded(linear.weight.detach(), bits)
        self.register_buffer("integers", integers)
        self.register_buffer("scale", scale)

    def effective_weight(self) -> Tensor:
        return restored(self.integers, self.scale, self.in_features)

    def forward(self, x: Tensor) -> Tensor:
        y = _Product.apply(x, self.integers, self.scale)
        return y if self.bias is None else y + self.bias.to(y.dtype)


def rounded_to(network: nn.Module, bits: Bits) -> None:
    """Rounds the plain linear maps of a network, in place, for inference."""
    replace(network, lambda linear: GroupedLinear(linear, bits))
    network.requires_grad_(False)


class _Product(torch.autograd.Function):
    """x W^T, which keeps the integers for its backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, integers: Tensor, scale: Tensor) -> Tensor:  # pyrefly: ignore[bad-override]
        ctx.save_for_backward(integers, scale)
        ctx.width, ctx.dtype = x.shape[-1], x.dtype
        return F.linear(x, restored(integers, scale, ctx.width).to(x.dtype))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # pyrefly: ignore[bad-override]
        integers, scale = ctx.saved_tensors
        weight = restored(integers, scale, ctx.width)
        return (gradient @ weight.to(gradient.dtype)).to(ctx.dtype), None, None


def rounded(weight: Tensor, bits: Bits) -> tuple[Tensor, Tensor]:
    """f d -> the integers, f (g 32) of int8, or two in a byte; and f g: the scale of each group of a row."""
    groups = F.pad(weight, (0, -weight.shape[1] % GROUP)).unflatten(1, (-1, GROUP))
    whole = (groups.abs().amax(2, keepdim=True) / LARGEST[bits]).clamp_min(torch.finfo(weight.dtype).tiny)
    best, least, scale = groups, torch.full_like(whole, torch.inf), whole
    for factor in SMALLER[bits]:
        integers = (groups / (factor * whole)).round_().clamp_(-LARGEST[bits] - 1, LARGEST[bits])
        error = (integers * (factor * whole) - groups).square_().sum(2, keepdim=True)
        better = error < least
        best, least = torch.where(better, integers, best), torch.where(better, error, least)
        scale = torch.where(better, factor * whole, scale)
    integers, scale = best.to(torch.int8).flatten(1), scale[..., 0]
    if bits == 8:
        return integers, scale
    pairs = (integers + 8).to(torch.uint8).unflatten(1, (-1, 2))
    return pairs[..., 0] | pairs[..., 1] << 4, scale


def restored(integers: Tensor, scale: Tensor, width: int) -> Tensor:
    """The inverse of `rounded`, apart from what rounding has lost: f d."""
    if integers.dtype == torch.uint8:
        integers = torch.stack((integers & 15, integers >> 4), -1).flatten(1).to(torch.int8) - 8
    return (integers.unflatten(1, (-1, GROUP)) * scale[..., None]).flatten(1)[:, :width]
