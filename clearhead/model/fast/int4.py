"""Four-bit weights: y = x W^T + b with W = s (n - 8) + z in groups, by PyTorch's kernel for CPUs."""

from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.model.block import Block
from clearhead.model.fast.fused_qkv import fuse_qkv
from clearhead.model.fast.grouped import GroupedLinear
from clearhead.model.fast.int8 import round_tables
from clearhead.model.linear import LinearMap, replace
from clearhead.model.transformer import Transformer

GROUP = 32
"""Numbers of a row that share a scale and a zero. The kernel takes 32, 64, 128 and 256."""
OUTPUTS = 64
"""The kernel needs a multiple of 16 outputs, and packs 64 together."""
MIDDLE, LARGEST = 8, 15
"""The integer that stands for z, and the largest."""
TOGETHER = 1 << 18
"""Numbers that are rounded at once, so that they stay in the processor's cache."""
SHARES = (1.0, 0.95, 0.9, 0.85, 0.8)
"""Shares of a group's range that are tried. A smaller one cuts off the ends, and rounds all others less."""


class Int4Linear(LinearMap):
    """y = bfloat16(x) W^T + b, W of four bits: each group of numbers of a row has a scale and a zero of its own.

    Of a few ranges, each group has the one with the least squared error. The kernel sums in float32 and rounds its
    result to bfloat16. Where gradients are asked for, the product is one of float32.
    """

    rounded = "int4"

    def __init__(self, linear: nn.Linear) -> None:
        bias = None if linear.bias is None else nn.Parameter(linear.bias.detach(), requires_grad=False)
        super().__init__(linear.in_features, linear.out_features, bias)
        self.padding = -linear.in_features % GROUP
        wide = F.pad(linear.weight.detach().float(), (0, self.padding, 0, -linear.out_features % OUTPUTS))
        integers, self.scales = rounded(wide)
        self.packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(integers, 1)

    def effective_weight(self) -> Tensor:
        """f d, float32. The kernel reads the integers out, because how it packs them depends on the processor."""
        ones = torch.ones_like(self.scales)
        ones[..., 1] = MIDDLE
        unit = torch.eye(self.in_features + self.padding, dtype=torch.bfloat16)
        integers = torch.ops.aten._weight_int4pack_mm_for_cpu(unit, self.packed, GROUP, ones).float().T
        scale, zero = self.scales.float().permute(1, 0, 2).unbind(-1)
        groups = (integers.unflatten(1, (-1, GROUP)) - MIDDLE) * scale[..., None] + zero[..., None]
        return groups.flatten(1)[: self.out_features, : self.in_features]

    def forward(self, x: Tensor) -> Tensor:
        if x.requires_grad and torch.is_grad_enabled():
            return F.linear(x, self.effective_weight().to(x.dtype), self.bias)
        rows = x.reshape(-1, self.in_features).bfloat16()
        rows = F.pad(rows, (0, self.padding)) if self.padding else rows
        y = torch.ops.aten._weight_int4pack_mm_for_cpu(rows, self.packed, GROUP, self.scales)
        y = y[:, : self.out_features].view(*x.shape[:-1], self.out_features)
        return (y if self.bias is None else self.bias + y).to(x.dtype)


def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """f (g 32), float32 -> the integers, f (g 32) of int32, and g f 2 of bfloat16: the scale and zero of each group."""
    parts = [_rounded_rows(rows) for rows in weight.split(max(1, TOGETHER // weight.shape[1]))]
    integers, scales = (torch.cat(kind) for kind in zip(*parts, strict=True))
    return integers, scales.transpose(0, 1).contiguous()


def _rounded_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """f (g 32) -> the integers, f (g 32), and f g 2."""
    groups = weight.unflatten(1, (-1, GROUP))
    low, high = groups.amin(2, keepdim=True), groups.amax(2, keepdim=True)
    middle, half = (low + high) / 2, (high - low) / 2
    best, *found = _to_range(groups, low, high)
    for share in SHARES[1:]:
        error, *other = _to_range(groups, middle - share * half, middle + share * half)
        better = error < best
        best = torch.where(better, error, best)
        found = [torch.where(better, new, old) for new, old in zip(other, found, strict=True)]
    integers, scale, zero = found
    return integers.int().flatten(1), torch.cat([scale, zero], 2).bfloat16()


def _to_range(groups: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Squared error, integers, scale and zero of groups whose integers span a range."""
    tiny = torch.finfo(torch.bfloat16).tiny
    scale = ((high - low) / LARGEST).clamp_min(tiny).bfloat16().float()
    zero = (low + MIDDLE * scale).bfloat16().float()
    integers = ((groups - zero) / scale + MIDDLE).round_().clamp_(0, LARGEST)
    error = ((integers - MIDDLE) * scale + zero - groups).square_().sum(2, keepdim=True)
    return error, integers, scale, zero


def rounded_to_four_bits(network: Transformer) -> None:
    """Rounds the plain linear maps of a network to four bits and its token tables to eight, in place, for inference.

    On a CPU whose kernel is right they are `Int4Linear`, and otherwise `GroupedLinear`, which any device can compute.
    """
    kernel = next(network.parameters()).device.type == "cpu" and has_kernel()
    kind: Callable[[nn.Linear], LinearMap] = Int4Linear if kernel else lambda linear: GroupedLinear(linear, 4)
    for module in list(network.modules()) if kernel else ():
        if isinstance(module, Block) and module.attn is not None:
            fuse_qkv(module.attn, kind)
    replace(network, kind)
    round_tables(network, next(network.parameters()).dtype)
    network.requires_grad_(False)


@cache
def has_kernel() -> bool:
    """True if this processor computes products of four bits, and computes them right."""
    linear = nn.Linear(2 * GROUP, OUTPUTS, bias=False, device="meta")
    linear.weight = nn.Parameter(torch.arange(2.0 * GROUP * OUTPUTS).sin().view(OUTPUTS, -1), requires_grad=False)
    x = torch.arange(2.0 * GROUP).cos()[None]
    try:
        made = Int4Linear(linear)
        found, expected = made(x), x @ made.effective_weight().T
    except (RuntimeError, NotImplementedError):  # Another processor, or another PyTorch.
        return False
    return bool((found - expected).abs().max() < 0.02 * expected.abs().max())
