"""Queries, keys and values of self-attention in one product, because one large product is quicker than three."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from clearhead.model.attention import Attention
from clearhead.model.linear import LinearMap, is_plain


class FusedQKV:
    """One product for the matrices that read the same states."""

    def __init__(self, module: LinearMap, sizes: list[int]) -> None:
        self.module, self.sizes = module, sizes
        self.last: tuple[Tensor, tuple[Tensor, ...]] | None = None

    def part(self, i: int, x: Tensor) -> Tensor:
        """The result of FusedQKVPart i. The first part computes the product and the last part releases it."""
        last = self.last  # Read once, because another thread may write it.
        if last is None or last[0] is not x:
            last = x, self.module(x).split(self.sizes, -1)
        self.last = last if i + 1 < len(self.sizes) else None
        return last[1][i]


class FusedQKVPart(LinearMap):
    """y = x W^T + b, computed as a part of a larger product."""

    def __init__(self, fused: FusedQKV, i: int) -> None:
        whole = fused.module
        bias = None if whole.bias is None else whole.bias.split(fused.sizes)[i]
        super().__init__(whole.in_features, fused.sizes[i], bias)
        self.fused, self.i, self.rounded = fused, i, whole.rounded

    def effective_weight(self) -> Tensor:
        return self.fused.module.effective_weight().split(self.fused.sizes)[self.i]

    def forward(self, x: Tensor) -> Tensor:
        return self.fused.part(self.i, x)


def parts(linears: Sequence[nn.Linear], module: LinearMap) -> list[LinearMap]:
    """A map in place of each of these. The rows of `module` are those of all maps, one map below the other."""
    if len(linears) == 1:
        return [module]
    fused = FusedQKV(module, [linear.out_features for linear in linears])
    return [FusedQKVPart(fused, i) for i in range(len(linears))]


def concatenated(linears: Sequence[nn.Linear]) -> nn.Linear:
    """One map in place of several that read the same states. A single map is returned unchanged."""
    if len(linears) == 1:
        return linears[0]
    n, bias = sum(linear.out_features for linear in linears), concatenated_bias(linears)
    whole = nn.Linear(linears[0].in_features, n, bias=False, device="meta")
    whole.weight = nn.Parameter(torch.cat([linear.weight.detach() for linear in linears]), requires_grad=False)
    if bias is not None:
        whole.bias = nn.Parameter(bias, requires_grad=False)
    return whole


def concatenated_bias(linears: Sequence[nn.Linear]) -> Tensor | None:
    """The biases joined, with zeros for a missing one; None if all are missing. A single bias is returned unchanged."""
    if len(linears) == 1 or all(linear.bias is None for linear in linears):
        return linears[0].bias
    zeros = [linear.weight.new_zeros(linear.out_features) for linear in linears]
    biases = [zero if linear.bias is None else linear.bias for linear, zero in zip(linears, zeros, strict=True)]
    return torch.cat(biases).detach()


def qkv_linears(attention: Attention) -> list[nn.Linear]:
    """The maps of self-attention to queries, keys and values, if all three are plain and read the same; else none."""
    linears = [attention.q, attention.k, attention.v]
    return linears if attention.latent is None and all(is_plain(linear) for linear in linears) else []


def fuse_qkv(attention: Attention, kind: Callable[[nn.Linear], LinearMap]) -> None:
    """Lets queries, keys and values of self-attention share a product if all three maps are plain."""
    if linears := qkv_linears(attention):
        for name, part in zip("qkv", parts(linears, kind(concatenated(linears))), strict=True):
            setattr(attention, name, part)
