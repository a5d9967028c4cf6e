"""Eight-bit weights: y = s_w (W_8 x) + b, for inference on a CPU."""

from abc import abstractmethod
from functools import cache

import torch
from torch import Tensor, nn

from clearhead.errors import UserError
from clearhead.model.block import Block
from clearhead.model.embedding import TokenEmbedding
from clearhead.model.fast.fused_qkv import fuse_qkv
from clearhead.model.linear import LEVELS, TINY, LinearMap, RoundedTable, replace, rounded
from clearhead.model.transformer import Transformer


class Int8Linear(LinearMap):
    """W rounded to eight bits, with one symmetric scale for each output: the largest number of a row becomes 127.

    Subclasses differ in how they store the integers and in how they convert x before the product.
    """

    rounded = "int8"

    def __init__(self, linear: nn.Linear) -> None:
        bias = None if linear.bias is None else nn.Parameter(linear.bias.detach().float(), requires_grad=False)
        super().__init__(linear.in_features, linear.out_features, bias)
        integers, self.scale = rounded(linear.weight.detach())
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
        self.packed = prepacked(integers)
        self.offset = torch.zeros(len(integers), dtype=torch.long)

    def integers(self) -> Tensor:
        return self.packed.to_dense().T

    def forward(self, x: Tensor) -> Tensor:
        # The kernel could multiply by the scale of a lone row, but a last bit of a quotient can make another integer,
        # and a text would depend on whether it is alone.
        largest = x.abs().amax(-1, keepdim=True).clamp_min_(TINY)
        y = _rounded_product(x, largest, self.packed, self.scale, self.offset)
        return y.mul_(largest) if self.bias is None else torch.addcmul(self.bias, y, largest)


def _rounded_product(x: Tensor, largest: Tensor, packed: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    """x / largest, rounded to one of the levels on each side of 0, by the matrix."""
    return product(low_byte(levels(x, largest)), packed, scale, offset)


def levels(x: Tensor, largest: Tensor) -> Tensor:
    """2^23 + 128 + the level of each number: x / largest times LEVELS, rounded."""
    return torch.addcdiv(middle(x.shape[-1]), x, largest, value=LEVELS)


def prepacked(integers: Tensor) -> Tensor:
    """A matrix of int8 for `product`."""
    return torch.ops.onednn.qlinear_prepack(integers.contiguous(), None)


def product(levels: Tensor, packed: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    """The levels, as bytes without a sign, over LEVELS, by a matrix that is `prepacked`."""
    return torch.ops.onednn.qlinear_pointwise(
        levels, 1 / LEVELS, LEVELS + 1, packed, scale, offset, None, 1.0, 0, torch.float32, "none", [], ""
    )


@cache
def middle(width: int) -> Tensor:
    """2^23 + 128 as a row, beside which PyTorch's loop is five times quicker than beside a lone number.

    oneDNN is fast only for numbers without a sign, so 128 is added. Between 2^23 and 2^24, float32 has whole numbers
    alone: the addition rounds to nearest, and the lowest byte of the sum is the integer.
    """
    with torch.inference_mode(False):
        return torch.full((width,), 2.0**23 + LEVELS + 1)


def low_byte(x: Tensor) -> Tensor:
    """The integers that were added to 2^23, as uint8: several times quicker than to convert float32 to uint8."""
    return x.view(torch.int32).to(torch.uint8)


class Float32Rows(Int8Linear):
    """y = s_w (x W_8) + b, for processors whose sums of eight-bit products overflow. Only the weights are rounded.

    FBGEMM's product reads the integers as float16, which holds them exactly, and computes in float32.
    """

    def store(self, integers: Tensor) -> None:
        self.halves = packed_halves(integers)

    def integers(self) -> Tensor:
        return torch.ops.quantized.linear_unpack_fp16(self.halves)[0].to(torch.int8)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.ops.quantized.linear_dynamic_fp16(x, self.halves)
        return y.mul_(self.scale) if self.bias is None else torch.addcmul(self.bias, y, self.scale)


def packed_halves(matrix: Tensor) -> torch.ScriptObject:
    """A matrix in float16 for `linear_dynamic_fp16`, the product of FBGEMM with float32 rows."""
    return torch.ops.quantized.linear_prepack_fp16(matrix.float(), None)


def multiplies_halves() -> bool:
    """True if PyTorch has this product for this processor."""
    return torch.backends.quantized.engine in ("fbgemm", "x86")


def quantized(network: Transformer) -> Transformer:
    """Rounds the matrices of `network` to eight bits, in place, and returns it.

    Token tables have eight bits too; positions, types and norms stay in float32.

    Raises UserError if PyTorch has no fast eight-bit products for its device.
    """
    device = next(network.parameters()).device
    is_fast = torch.backends.mkldnn.is_available() and (sums_are_exact() or multiplies_halves())
    if device.type != "cpu" or not is_fast:
        got = device.type if device.type != "cpu" else "one that it does not support"
        raise UserError(f"int8: expected a CPU that oneDNN supports, got {got}; try --dtype bfloat16")
    for module in list(network.modules()):
        if isinstance(module, Block) and module.attn is not None:
            fuse_qkv(module.attn, eight_bits)
    replace(network, eight_bits)
    round_tables(network, torch.float32)
    return network.float().eval().requires_grad_(False)


def round_tables(network: Transformer, dtype: torch.dtype) -> None:
    """Rounds the token tables of `network` to eight bits, in place. Stacks that share a table still do.

    `dtype` is the type of the rows that they return.
    """
    made: dict[Tensor, RoundedTable] = {}
    for stack in network.stacks().values():
        if isinstance(stack.embed, TokenEmbedding) and isinstance(table := stack.lookup, nn.Embedding):
            if table.weight not in made:
                made[table.weight] = RoundedTable(table.weight.detach(), dtype)
            stack.embed.tokens = made[table.weight]


def eight_bits(linear: nn.Linear) -> Int8Linear:
    """`linear` in eight bits, by a product that does not overflow here."""
    return RoundedRows(linear) if sums_are_exact() else Float32Rows(linear)


@cache
def sums_are_exact() -> bool:
    """True if eight-bit products of this processor add up exactly: without VNNI, pairs of them saturate 16 bits."""
    packed = torch.ops.onednn.qlinear_prepack(torch.full((16, 64), LEVELS, dtype=torch.int8), None)
    scale, offset = torch.full((16,), 1 / LEVELS), torch.zeros(16, dtype=torch.long)
    product = _rounded_product(torch.ones(1, 64), torch.ones(1, 1), packed, scale, offset)
    return bool((product - 64).abs().max() < 0.01)
