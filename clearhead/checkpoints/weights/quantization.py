"""Which quantized folders are opened, by what their config.json says. Imports no torch.

The weights of such a folder are dequantized when they are loaded (`dequantize.py`). Other methods are refused by name.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from clearhead.checkpoints.weights.documents import AGAIN, ORIGIN, short, shown
from clearhead.errors import UserError

FIELDS = ("quantization_config", "compression_config")
ROWS, COLUMNS, BYTES, FLOAT8, COMPRESSED = "gptq", "awq", "bitsandbytes", "fp8", "compressed-tensors"
METHODS = {
    ROWS: ROWS,
    COLUMNS: COLUMNS,
    BYTES: BYTES,
    FLOAT8: FLOAT8,
    "fbgemm_fp8": FLOAT8,
    COMPRESSED: COMPRESSED,
    "compressed_tensors": COMPRESSED,
}
"""Names of methods in `quant_method` -> ours."""
BITS = (2, 4, 8)
"""The widths of numbers, in bits, that divide 32."""
ROW_FORMATS = ("gptq", "gptq_v2")
COMPRESSED_FORMATS = ("float-quantized", "int-quantized", "naive-quantized", "pack-quantized", "dense")


@dataclass(frozen=True)
class Method:
    """How the weights of a folder are quantized."""

    name: str
    bits: int = 4
    zero_below: bool = False
    """Whether the stored zero points are one less than those meant."""
    block: tuple[int, int] | None = None
    """Rows and columns with one scale in common, where it has neither the whole matrix nor one row."""
    symmetric: bool = False
    """Whether a matrix without zero points has them all at half of the range."""
    reordered: bool = False
    """Whether the rows of a group lie apart, so that each matrix must say which row is in which group."""


def method_of(document: Mapping[str, Any], *, where: str, but: Collection[str] = ()) -> Method | None:
    """The method that a config names; None for plain weights. Raises UserError for a method that is not known here.

    `but` are methods whose tensors the family's own rules read.
    """
    for field in FIELDS:
        if (said := document.get(field)) is not None:
            place = f"{where}:{field}"
            if not isinstance(said, dict):
                raise UserError(f"{place}: expected a table, got {short(said)}; {ORIGIN}")
            return None if str(said.get("quant_method")).lower() in but else _method(said, field, place)
    return None


def _method(said: Mapping[str, Any], field: str, where: str) -> Method:
    given = str(said.get("quant_method", COMPRESSED if field == FIELDS[1] else None))
    name = METHODS.get(given.lower())
    if name == ROWS:
        form = str(said.get("checkpoint_format") or said.get("format") or ROWS).lower()
        zero_below = _one_of(form, ROW_FORMATS, "checkpoint_format", where) == ROWS
        how = {"symmetric": said.get("sym") is True, "reordered": said.get("desc_act") is True}
        return Method(name, _bits(said, where), zero_below=zero_below, **how)
    if name == COLUMNS:
        _one_of(str(said.get("version") or said.get("format") or "gemm").lower(), ("gemm",), "version", where)
        return Method(name, _bits(said, where, (4,)), symmetric=said.get("zero_point") is False)
    if name == COMPRESSED:
        form = str(said.get("format") or "dense")
        _one_of(form, COMPRESSED_FORMATS, "format", where)
        weights = _weights(said, where)
        bits = _bits({"bits": weights.get("num_bits")}, where, (4, 8)) if form == "pack-quantized" else 8
        return Method(name, bits, block=_block(weights.get("block_structure"), where))
    if name is None:
        bits = said.get("bits") or said.get("w_bit")
        got = f"{shown(given)}{f' in {bits} bits' if bits else ''}" if "quant_method" in said else short(said)
        known = ", ".join(dict.fromkeys(METHODS.values()))
        raise UserError(f"{where}: expected plain weights or one of {known}, got {got}; {ORIGIN}")
    return Method(name, block=_block(said.get("weight_block_size"), where))


def _bits(said: Mapping[str, Any], where: str, known: tuple[int, ...] = BITS) -> int:
    found = said.get("bits", said.get("w_bit", 4))
    if found not in known:
        expected = " or ".join(map(str, known))
        raise UserError(f"{where}:bits: expected {expected}, got {short(found)}; {ORIGIN}")
    return int(found)


def _one_of(value: str, known: tuple[str, ...], field: str, where: str) -> str:
    if value not in known:
        raise UserError(f"{where}:{field}: expected {' or '.join(known)}, got {shown(value)}; {ORIGIN}")
    return value


def _block(said: object, where: str) -> tuple[int, int] | None:
    if said is None:
        return None
    sizes = said if isinstance(said, list) else str(said).split("x")
    if len(sizes) != 2 or not all(str(size).isdecimal() and int(size) > 0 for size in sizes):
        raise UserError(
            f"{where}: expected the rows and columns of a block, such as [128, 128], got {short(said)}; {AGAIN}"
        )
    return int(sizes[0]), int(sizes[1])


def _weights(said: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """How the weights are quantized, which must be the same in every group of layers."""
    groups = said.get("config_groups")
    tables = (
        [group.get("weights") for group in groups.values() if isinstance(group, dict)]
        if isinstance(groups, dict)
        else []
    )
    first = next(iter(tables), None) or {}
    if not isinstance(first, dict) or any(table != first for table in tables):
        raise UserError(f"{where}:config_groups: expected the same for all weights, got {len(tables)} groups; {ORIGIN}")
    return first
