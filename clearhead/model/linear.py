"""y = x W^T + b for networks that only read and write: weights packed for the processor, or rounded to eight bits."""

import copy
from collections.abc import Callable
from functools import cache
from typing import TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from clearhead.errors import UserError
from clearhead.model.attention import Attention
from clearhead.model.transformer import Transformer

WORTH_PACKING = 1 << 18
"""Numbers in a matrix from which on packing pays: below, plain products are as fast (docs/inference.md)."""
PACKED_BYTES = 4 << 30
"""Bytes of weights up to which a packed copy is kept beside them."""
ROWS = 64
"""Rows that packed weights are laid out for; fewer and more work too, one row as fast as with a layout of its own."""
TINY = torch.finfo(torch.float32).tiny
SAMPLE = 4
"""Rows and columns of each matrix that are looked at to see whether it has changed, about."""
ACCURATE = 1e-5
"""The largest difference between packed and plain products, as a share of the largest number, that packing may make."""


# --- packed: the same numbers in another order ----------------------------------------------------------------------


class PackedLinear(nn.Module):
    """y = x W^T + b, W once more in the order in which oneDNN reads it fastest; for inference on a CPU."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.bias = linear.bias
        self.packed = _pack(linear.weight.detach())

    @property
    def weight(self) -> Tensor:
        """f d, in their usual order."""
        return self.packed.to_dense()

    def forward(self, x: Tensor) -> Tensor:
        """... d -> ... f."""
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")


def _pack(weight: Tensor) -> Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)


_copies: WeakKeyDictionary[Transformer, tuple[object, Transformer]] = WeakKeyDictionary()
"""Packed copies of networks that still exist, with the state of which they are."""


def packed(network: Transformer) -> Transformer:
    """A copy with packed matrices that shares everything else; the network itself where packing would not pay.

    The copy is kept until the network is gone, its weights have changed, or `forget` is called.
    """
    weights = [m.weight for m in network.modules() if type(m) is nn.Linear and m.weight.numel() >= WORTH_PACKING]
    if not _can_pack(weights) or _is_watched(network):
        return network
    known = ready(network)
    if known is not network:
        return known
    result = copy.deepcopy(network, {id(p): p for p in network.parameters()})
    _replace(result, lambda linear: PackedLinear(linear) if linear.weight.numel() >= WORTH_PACKING else None)
    _copies[network] = _state(network), result
    return result


def ready(network: Transformer) -> Transformer:
    """Its packed copy where there is one, else the network itself."""
    known = _copies.get(network)
    is_good = known is not None and known[0] == _state(network) and not _is_watched(network)
    return known[1] if known is not None and is_good else network


def _state(network: Transformer) -> tuple[object, ...]:
    """What a copy depends on: the weights, and what somebody may have set by hand.

    A few numbers of each matrix, because fused optimizers and `.data` change weights and count no version.
    """
    linears = [m.weight.detach() for m in network.modules() if type(m) is nn.Linear]
    some = [w[tuple(slice(None, None, max(1, n // SAMPLE)) for n in w.shape)].flatten() for w in linears]
    weights = [(w.data_ptr(), 0 if w.is_inference() else w._version) for w in network.parameters()]
    settings = [(m.scale, m.soft_cap) for m in network.modules() if isinstance(m, Attention)]
    return (*weights, *settings, tuple(torch.cat(some).tolist()) if some else ())


def _is_watched(network: Transformer) -> bool:
    """Whether a copy would pass by what happens in the network: hooks, and autocast, which knows no packed products."""
    hooks = any(m._forward_hooks or m._forward_pre_hooks for m in network.modules())
    return hooks or torch.is_autocast_enabled("cpu")


def forget(network: Transformer) -> None:
    """Give the memory of its packed copy back."""
    _copies.pop(network, None)


def _can_pack(weights: list[Tensor]) -> bool:
    if not weights or not torch.backends.mkldnn.is_available():
        return False
    small = sum(w.numel() * w.element_size() for w in weights) <= PACKED_BYTES
    plain = all(w.device.type == "cpu" and w.dtype == weights[0].dtype for w in weights)
    return small and plain and _packs_accurately(weights[0].dtype)


@cache
def _packs_accurately(dtype: torch.dtype) -> bool:
    """Whether this machine's packed products are products of this type: some settings let oneDNN round further."""
    if dtype not in (torch.float32, torch.bfloat16):
        return False
    weight = torch.arange(512.0 * 512).sin().view(512, 512).to(dtype)
    x = torch.arange(4.0 * 512).cos().view(4, 512).to(dtype)
    expected = x @ weight.T
    try:
        found = torch.ops.mkldnn._linear_pointwise(x, _pack(weight), None, "none", [], "")
    except RuntimeError:  # Not on this processor.
        return False
    gap = (found - expected).abs().max() / expected.abs().max()
    return float(gap) <= (ACCURATE if dtype == torch.float32 else torch.finfo(dtype).eps)


# --- eight bits -----------------------------------------------------------------------------------------------------


class Int8Linear(nn.Module):
    """y = s_x s_w (round(x / s_x) round(W / s_w)^T) + b, s_w one for each output, s_x one for each row of x

    Symmetric scales: the largest number of a row becomes 127. Products of eight-bit numbers add up exactly in 32 bits,
    so that a row's result does not depend on the rows beside it (Dettmers et al. 2022, 2.1, without outliers).
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach().float()
        self.scale = (weight.abs().amax(1) / 127).clamp_min(TINY)
        rounded = (weight / self.scale[:, None]).round_().to(torch.int8).contiguous()
        self.packed = torch.ops.onednn.qlinear_prepack(rounded, None)
        self.offset = torch.zeros(len(weight), dtype=torch.long)
        self.levels = _levels()
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach().float(), requires_grad=False)
        self.in_features, self.out_features = linear.in_features, linear.out_features

    @property
    def weight(self) -> Tensor:
        """f d: the numbers that the eight bits stand for, for whoever explains a product."""
        return self.packed.to_dense().T * self.scale[:, None]

    def forward(self, x: Tensor) -> Tensor:
        """... d -> ... f, both float32."""
        largest = x.abs().amax(-1, keepdim=True).clamp_min_(TINY)
        y = _product(x, largest, self.levels, self.packed, self.scale, self.offset)
        return y.mul_(largest) if self.bias is None else torch.addcmul(self.bias, y, largest)


def _product(x: Tensor, largest: Tensor, levels: int, packed: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    """x / largest, rounded to one of the levels on each side of 0, by the matrix."""
    # oneDNN is fast for numbers without a sign alone; and turning one into such a number drops its fraction.
    shifted = torch.addcdiv(_middle(levels), x, largest, value=levels).to(torch.uint8)
    return torch.ops.onednn.qlinear_pointwise(
        shifted, 1 / levels, levels + 1, packed, scale, offset, None, 1.0, 0, torch.float32, "none", [], ""
    )


@cache
def _middle(levels: int) -> Tensor:
    return torch.tensor(levels + 1.5)


@cache
def _levels() -> int:
    """Levels on each side of 0 that rows are rounded to: 127, or 63 where sums of two products overflow 16 bits."""
    packed = torch.ops.onednn.qlinear_prepack(torch.full((16, 64), 127, dtype=torch.int8), None)
    scale, offset = torch.full((16,), 1 / 127), torch.zeros(16, dtype=torch.long)
    product = _product(torch.ones(1, 64), torch.ones(1, 1), 127, packed, scale, offset)
    return 127 if (product - 64).abs().max() < 0.01 else 63


def quantized(network: Transformer) -> Transformer:
    """The network itself, its matrices rounded to eight bits; embeddings and norms stay as they are, in float32.

    Raises UserError where PyTorch has no fast eight-bit products.
    """
    device = next(network.parameters()).device
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        got = device.type if device.type != "cpu" else "one that it does not support"
        raise UserError(f"int8: expected a CPU that oneDNN supports, got {got}; try --dtype bfloat16")
    _replace(network, Int8Linear)
    return network.float().eval().requires_grad_(False)


def refuse_int8(network: nn.Module, what: str) -> None:
    """UserError where `what` needs the weights that were rounded away."""
    if any(isinstance(module, Int8Linear) for module in network.modules()):
        raise UserError(f"{what}: expected weights as they were stored, got int8; try load(…) without int8")


# --- putting them in place ------------------------------------------------------------------------------------------


class Joint:
    """One product for the matrices that read the same states: those of queries, keys and values."""

    def __init__(self, module: PackedLinear | Int8Linear, sizes: list[int]) -> None:
        self.module, self.sizes = module, sizes
        self.last: tuple[Tensor, tuple[Tensor, ...]] | None = None

    def part(self, i: int, x: Tensor) -> Tensor:
        """Part i of the product, computed when the first part is asked for and given up with the last."""
        last = self.last  # read once, for another thread may write it
        if last is None or last[0] is not x:
            last = x, self.module(x).split(self.sizes, -1)
        self.last = last if i + 1 < len(self.sizes) else None
        return last[1][i]


class Part(nn.Module):
    """y = x W^T + b as a part of a larger product."""

    def __init__(self, joint: Joint, i: int) -> None:
        super().__init__()
        self.joint, self.i = joint, i

    @property
    def weight(self) -> Tensor:
        """f d"""
        return self.joint.module.weight.split(self.joint.sizes)[self.i]

    @property
    def bias(self) -> Tensor | None:
        """f"""
        bias = self.joint.module.bias
        return None if bias is None else bias.split(self.joint.sizes)[self.i]

    def forward(self, x: Tensor) -> Tensor:
        """... d -> ... f."""
        return self.joint.part(self.i, x)


Made: TypeAlias = PackedLinear | Int8Linear | None


def _replace(network: Transformer, new: Callable[[nn.Linear], Made]) -> None:
    """Another matrix in the place of each for which there is one."""
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, Attention) and name == "attn":
                linears = [child.q, child.k, child.v]
                # Somebody's own layers there, such as adapters, stay what they are.
                made = new(_joined(linears)) if all(type(linear) is nn.Linear for linear in linears) else None
                if made is not None:
                    joint = Joint(made, [linear.out_features for linear in linears])
                    for i, part in enumerate("qkv"):
                        setattr(child, part, Part(joint, i))
            elif type(child) is nn.Linear and (made := new(child)) is not None:
                setattr(module, name, made)


def _joined(linears: list[nn.Linear]) -> nn.Linear:
    biases = [linear.bias.detach() for linear in linears if linear.bias is not None]
    n_outputs = sum(linear.out_features for linear in linears)
    result = nn.Linear(linears[0].in_features, n_outputs, bias=bool(biases), device="meta")
    result.weight = nn.Parameter(torch.cat([linear.weight.detach() for linear in linears]), requires_grad=False)
    if biases:
        result.bias = nn.Parameter(torch.cat(biases), requires_grad=False)
    return result
