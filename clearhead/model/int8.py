"""Eight-bit weights: y = s_w (W_8 x) + b, for inference on a CPU."""

from abc import abstractmethod
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import UserError
from clearhead.model.attention import Attention
from clearhead.model.block import Block
from clearhead.model.linear import LinearMap, is_plain, replace
from clearhead.model.transformer import Transformer

LEVELS = 127
"""Integers on each side of 0."""
TINY = torch.finfo(torch.float32).tiny
BLOCK = 64
"""The eight-bit kernel for bfloat16 rows needs a multiple of this many inputs: it reads beyond the end of others."""
FEW_ROWS = 32
"""Rows up to which that kernel is faster than a float32 product of the same integers (docs/inference.md)."""


def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """f d, float32 -> the integers, f d of int8, and the scale of each row, f."""
    scale = (weight.abs().amax(1) / LEVELS).clamp_min(TINY)
    return (weight / scale[:, None]).round_().to(torch.int8), scale


class Int8Linear(LinearMap):
    """W rounded to eight bits, with one symmetric scale for each output: the largest number of a row becomes 127.

    Subclasses differ in how they store the integers and in how they convert x before the product.
    """

    rounded = "int8"

    def __init__(self, linear: nn.Linear) -> None:
        bias = None if linear.bias is None else nn.Parameter(linear.bias.detach().float(), requires_grad=False)
        super().__init__(linear.in_features, linear.out_features, bias)
        integers, self.scale = rounded(linear.weight.detach().float())
        self.store(integers)

    @abstractmethod
    def store(self, integers: Tensor) -> None:
        """Stores integers, f d of int8, in the form that `forward` reads."""

    @abstractmethod
    def integers(self) -> Tensor:
        """f d, int8: the integers that `store` received."""

    def effective_weight(self) -> Tensor:
        return self.integers() * self.scale[:, None]


class RoundedRows(Int8Linear):
    """y = s_x s_w (round(x / s_x) W_8) + b: each row of x is rounded to eight bits too, with a scale of its own

    The products add up exactly in 32-bit integers (Dettmers et al. 2022, section 2.1, without outliers). Only the last
    rounding to float32 depends on the kernel that oneDNN chooses for a number of rows.
    """

    def store(self, integers: Tensor) -> None:
        self.packed = torch.ops.onednn.qlinear_prepack(integers.contiguous(), None)
        self.offset = torch.zeros(len(integers), dtype=torch.long)

    def integers(self) -> Tensor:
        return self.packed.to_dense().T

    def forward(self, x: Tensor) -> Tensor:
        largest = x.abs().amax(-1, keepdim=True).clamp_min_(TINY)
        y = _rounded_product(x, largest, self.packed, self.scale, self.offset)
        return y.mul_(largest) if self.bias is None else torch.addcmul(self.bias, y, largest)


def _rounded_product(x: Tensor, largest: Tensor, packed: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    """x / largest, rounded to one of the levels on each side of 0, by the matrix."""
    # oneDNN is fast only for unsigned numbers, and the conversion to them drops the fraction.
    shifted = torch.addcdiv(_middle(), x, largest, value=LEVELS).to(torch.uint8)
    return torch.ops.onednn.qlinear_pointwise(
        shifted, 1 / LEVELS, LEVELS + 1, packed, scale, offset, None, 1.0, 0, torch.float32, "none", [], ""
    )


@cache
def _middle() -> Tensor:
    return torch.tensor(LEVELS + 1.5)


class Bfloat16Rows(Int8Linear):
    """y = s_w bfloat16(bfloat16(x) W_8) + b, for processors whose sums of eight-bit products overflow."""

    def store(self, integers: Tensor) -> None:
        self.padding = -integers.shape[1] % BLOCK
        self.padded = F.pad(integers, (0, self.padding)).contiguous()
        self.ones = torch.ones(len(integers), dtype=torch.bfloat16)

    def integers(self) -> Tensor:
        return self.padded[:, : self.in_features]

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, self.in_features).bfloat16()
        if len(rows) <= FEW_ROWS:
            y = torch._weight_int8pack_mm(F.pad(rows, (0, self.padding)), self.padded, self.ones)
        else:
            y = F.linear(rows.float(), self.integers().float()).bfloat16()
        y = y.float().view(*x.shape[:-1], self.out_features)
        return y * self.scale if self.bias is None else torch.addcmul(self.bias, y, self.scale)


def quantized(network: Transformer) -> Transformer:
    """Rounds the matrices of `network` to eight bits, in place, and returns it. Embeddings and norms stay in float32.

    Raises UserError if PyTorch has no fast eight-bit products for its device.
    """
    device = next(network.parameters()).device
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        got = device.type if device.type != "cpu" else "one that it does not support"
        raise UserError(f"int8: expected a CPU that oneDNN supports, got {got}; try --dtype bfloat16")
    kind = RoundedRows if sums_are_exact() else Bfloat16Rows
    for module in list(network.modules()):
        if isinstance(module, Block):
            _join(module.attn, kind)
    replace(network, kind)
    return network.float().eval().requires_grad_(False)


@cache
def sums_are_exact() -> bool:
    """Whether eight-bit products of this processor add up exactly: without VNNI, pairs of them saturate 16 bits."""
    packed = torch.ops.onednn.qlinear_prepack(torch.full((16, 64), LEVELS, dtype=torch.int8), None)
    scale, offset = torch.full((16,), 1 / LEVELS), torch.zeros(16, dtype=torch.long)
    product = _rounded_product(torch.ones(1, 64), torch.ones(1, 1), packed, scale, offset)
    return bool((product - 64).abs().max() < 0.01)


# --- queries, keys and values in one product ------------------------------------------------------------------------


class Joint:
    """One product for the matrices that read the same states."""

    def __init__(self, module: Int8Linear, sizes: list[int]) -> None:
        self.module, self.sizes = module, sizes
        self.last: tuple[Tensor, tuple[Tensor, ...]] | None = None

    def part(self, i: int, x: Tensor) -> Tensor:
        """The result of JointPart i. The first part computes the product and the last part releases it."""
        last = self.last  # Read once, because another thread may write it.
        if last is None or last[0] is not x:
            last = x, self.module(x).split(self.sizes, -1)
        self.last = last if i + 1 < len(self.sizes) else None
        return last[1][i]


class JointPart(LinearMap):
    """y = x W^T + b, computed as a part of a larger product."""

    rounded = "int8"

    def __init__(self, joint: Joint, i: int) -> None:
        whole = joint.module
        bias = None if whole.bias is None else whole.bias.split(joint.sizes)[i]
        super().__init__(whole.in_features, joint.sizes[i], bias)
        self.joint, self.i = joint, i

    def effective_weight(self) -> Tensor:
        return self.joint.module.effective_weight().split(self.joint.sizes)[self.i]

    def forward(self, x: Tensor) -> Tensor:
        return self.joint.part(self.i, x)


def _join(attention: Attention, kind: type[Int8Linear]) -> None:
    """Lets queries, keys and values of self-attention share a product if all three maps are plain."""
    linears = [attention.q, attention.k, attention.v]
    if not all(is_plain(linear) for linear in linears):
        return
    biases = [linear.bias.detach() for linear in linears if linear.bias is not None]
    sizes = [linear.out_features for linear in linears]
    whole = nn.Linear(linears[0].in_features, sum(sizes), bias=bool(biases), device="meta")
    whole.weight = nn.Parameter(torch.cat([linear.weight.detach() for linear in linears]), requires_grad=False)
    if biases:
        whole.bias = nn.Parameter(torch.cat(biases), requires_grad=False)
    joint = Joint(kind(whole), sizes)
    for i, name in enumerate("qkv"):
        setattr(attention, name, JointPart(joint, i))
