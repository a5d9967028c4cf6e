"""Dequantizes the tensors of a folder, one matrix after the other.

Each method stores a matrix as several tensors below one name: `q_proj.qweight`, `q_proj.scales`. A rule in RULES says
which, and computes the matrix in float32. Sources: the formats' own documentation and reference implementations (GPTQ:
AutoGPTQ's and GPTQModel's packing; AWQ: AutoAWQ's "gemm"; bitsandbytes: its serialized QuantState; fp8 and
compressed-tensors: the block and channel scales of transformers and vLLM).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearhead.checkpoints.weights.documents import AGAIN, shown
from clearhead.checkpoints.weights.quantization import BYTES, COLUMNS, COMPRESSED, FLOAT8, ROWS, Method
from clearhead.errors import UserError
from clearhead.json_text import parse

Parts = Mapping[str, Tensor]
WORD = 32
AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
"""Column i of eight is in the bits 4 * AWQ_ORDER[i] of a word."""
STATE = "weight.quant_state.bitsandbytes__"


@dataclass(frozen=True)
class Rule:
    """One way in which a matrix is stored."""

    key: str
    """The part that marks a matrix stored in this way: a name, or the beginning of one."""
    others: tuple[str, ...]
    """Further parts. They are read or dropped; none is left as a tensor of the model."""
    weight: Callable[[Parts, Method], Tensor]


# --- numbers packed into words ---------------------------------------------------------------------------------------


def _unpacked(words: Tensor, bits: int, dim: int) -> Tensor:
    """The numbers in words of 32 bits along a dimension, the lowest bits first."""
    shifts = torch.arange(0, WORD, bits, dtype=torch.int32)
    numbers = (words.unsqueeze(dim + 1) >> shifts.view(-1, *[1] * (words.ndim - dim - 1))) & (2**bits - 1)
    return numbers.flatten(dim, dim + 1)


def _gptq(parts: Parts, method: Method) -> Tensor:
    """w[i, o] = scale[g, o] (q[i, o] - zero[g, o]), with the group g of row i; stored with inputs first."""
    numbers = _unpacked(parts["qweight"], method.bits, 0)
    zeros = _zeros(parts, method, lambda words: _unpacked(words, method.bits, 1))
    if method.zero_below and "qzeros" in parts:
        zeros = (zeros + 1) & (2**method.bits - 1)
    groups, n = len(parts["scales"]), len(numbers)
    if method.reordered and "g_idx" not in parts and groups > 1:
        raise UserError("expected g_idx, the group of each row, as desc_act=true says, got none")
    ordered = torch.arange(n) // -(-n // groups)
    group = parts["g_idx"].long() if "g_idx" in parts else ordered
    return ((numbers - zeros[group]) * parts["scales"].float()[group]).T.contiguous()


def _zeros(parts: Parts, method: Method, unpacked: Callable[[Tensor], Tensor]) -> Tensor:
    """The zero points, which a symmetric matrix need not store: they are half of the range."""
    if method.symmetric and "qzeros" not in parts:
        return torch.full(parts["scales"].shape, 2 ** (method.bits - 1), dtype=torch.int32)
    return unpacked(parts["qzeros"])


def _awq(parts: Parts, method: Method) -> Tensor:
    """As GPTQ, with outputs packed, each eight in an order of their own."""
    order = torch.tensor(AWQ_ORDER)

    def columns(words: Tensor) -> Tensor:
        return _unpacked(words, method.bits, 1).unflatten(1, (-1, 8))[:, :, order].flatten(1)

    zeros = _zeros(parts, method, columns)
    numbers, scales = columns(parts["qweight"]), parts["scales"].float()
    size = len(numbers) // len(scales)
    return ((numbers.unflatten(0, (-1, size)) - zeros[:, None]) * scales[:, None]).flatten(0, 1).T.contiguous()


def _packed(parts: Parts, method: Method) -> Tensor:
    """w[o, i] = scale[o, g] (q[o, i] - zero[o, g]), q and zero stored with half of their range added."""
    rows, columns = parts["weight_shape"].tolist()
    half = 2 ** (method.bits - 1)
    numbers = _unpacked(parts["weight_packed"], method.bits, 1)[:rows, :columns] - half
    scales = parts["weight_scale"].float()
    size = -(-columns // scales.shape[1])
    group = parts["weight_g_idx"].long() if "weight_g_idx" in parts else torch.arange(columns) // size
    if "weight_zero_point" in parts:
        zeros = _unpacked(parts["weight_zero_point"], method.bits, 0)[:rows] - half
        numbers = numbers - zeros[:, group]
    return numbers * scales[:, group]


# --- bytes -----------------------------------------------------------------------------------------------------------


def _four_bits(parts: Parts, _: Method) -> Tensor:
    """w = map[q] absmax[block], the first number of a byte in its high half; absmax may itself be quantized."""
    name = next(name for name in parts if name.startswith(STATE))
    state: Any = parse(bytes(parts[name].tolist()), name)
    packed = parts["weight"].contiguous().view(torch.uint8).flatten()
    numbers = torch.stack([packed >> 4, packed & 15], 1).flatten().long()
    shape = [int(n) for n in state["shape"]]
    absmax = parts["weight.absmax"]
    if absmax.dtype == torch.uint8:
        nested = parts["weight.nested_quant_map"].float()[absmax.long()]
        scales = parts["weight.nested_absmax"].float().repeat_interleave(int(state["nested_blocksize"]))
        absmax = nested * scales[: len(nested)] + float(state["nested_offset"])
    scales = absmax.float().repeat_interleave(int(state["blocksize"]))
    n = math.prod(shape)
    return (parts["weight.quant_map"].float()[numbers[:n]] * scales[:n]).view(shape)


def _eight_bits(parts: Parts, _: Method) -> Tensor:
    """w = q absmax / 127, with the largest value of each row."""
    if int(parts.get("weight_format", torch.tensor(0))) != 0:
        raise UserError("expected weight_format 0, rows one after the other, got another")
    return parts["weight"].float() * parts["SCB"].float()[:, None] / 127


def _blocks(parts: Parts, method: Method) -> Tensor:
    """w = q scale, with a scale for the matrix, for each row, or for each block of rows and columns."""
    weight = parts["weight"].float()
    scale = (parts["weight_scale_inv"] if "weight_scale_inv" in parts else parts["weight_scale"]).float()
    if "weight_zero_point" in parts and parts["weight_zero_point"].float().any():
        raise UserError("expected numbers without zero points, got some")
    scale = scale.reshape(-1, 1) if scale.ndim < 2 else scale
    for dim, width in enumerate(weight.shape):
        block = method.block[dim] if method.block else 1
        size = width if scale.shape[dim] == 1 else block
        if -(-width // size) != scale.shape[dim]:
            raise UserError(f"expected {-(-width // size)} scales for {width} numbers, got {scale.shape[dim]}")
        scale = scale.repeat_interleave(size, dim).narrow(dim, 0, width)
    return weight * scale


WORDS = ("qzeros", "scales", "g_idx")
FLOATS = ("weight", "weight_scale", "weight_zero_point", "input_scale", "activation_scale", "input_zero_point")
RULES: Mapping[str, tuple[Rule, ...]] = {
    ROWS: (Rule("qweight", WORDS, _gptq),),
    COLUMNS: (Rule("qweight", WORDS[:2], _awq),),
    BYTES: (
        Rule(
            STATE,
            ("weight", *(f"weight.{name}" for name in ("absmax", "quant_map", "nested_absmax", "nested_quant_map"))),
            _four_bits,
        ),
        Rule("SCB", ("weight", "weight_format"), _eight_bits),
    ),
    FLOAT8: (Rule("weight_scale_inv", FLOATS, _blocks), Rule("weight_scale", FLOATS, _blocks)),
    COMPRESSED: (
        Rule("weight_packed", ("weight_shape", "weight_scale", "weight_zero_point", "weight_g_idx"), _packed),
        Rule("weight_scale", FLOATS, _blocks),
    ),
}


def dequantized(tensors: Mapping[str, Tensor], method: Method, dtype: torch.dtype, *, where: str) -> dict[str, Tensor]:
    """The tensors with every quantized matrix in this type. Raises UserError for parts that do not fit together."""
    left = dict(tensors)
    found: dict[str, Tensor] = {}
    for rule in RULES[method.name]:
        for name in [name for name in tensors if _module(name, rule.key) is not None and name in left]:
            module = str(_module(name, rule.key))
            parts = {name.removeprefix(f"{module}."): left.pop(name)}
            parts |= {other: left.pop(f"{module}.{other}") for other in rule.others if f"{module}.{other}" in left}
            found[f"{module}.weight"] = _weight(rule, parts, method, f"{where}:{shown(module)}").to(dtype)
    if not found:
        raise UserError(
            f"{where}/config.json:quantization_config: expected quantized matrices, as it says, got none; {AGAIN}"
        )
    return left | found


def count(tensors: Mapping[str, Tensor], method: Method) -> int:
    """About how many numbers the dequantized matrices have."""
    keys = {"qweight", "weight_packed", "weight"}
    per_item = {4: WORD // method.bits, 1: 2 if any(STATE in name for name in tensors) else 1}
    return sum(
        tensor.numel() * per_item.get(tensor.itemsize, 1)
        for name, tensor in tensors.items()
        if name.rpartition(".")[2] in keys and (not tensor.is_floating_point() or tensor.itemsize == 1)
    )


def _module(name: str, key: str) -> str | None:
    """The module of a part: `x.q_proj` of `x.q_proj.qweight`."""
    at = name.find(f".{key}")
    ends = key.endswith("_") or name.endswith(f".{key}")
    return name[:at] if at > 0 and ends else None


def _weight(rule: Rule, parts: Parts, method: Method, where: str) -> Tensor:
    try:
        return rule.weight(parts, method)
    except UserError as error:
        raise UserError(f"{where}: {error}; {AGAIN}") from None
    except (KeyError, IndexError, RuntimeError, TypeError, ValueError, ZeroDivisionError):
        shapes = ", ".join(f"{shown(name)} {list(part.shape)}" for name, part in parts.items())
        raise UserError(f"{where}: expected the parts of a quantized matrix, got {shapes}; {AGAIN}") from None
