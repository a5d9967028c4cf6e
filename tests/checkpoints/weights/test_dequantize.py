"""Quantized folders: matrices packed here after each format's documentation open as the numbers they stand for.

The packers below share no code with the product: they loop over rows, columns and bits.
"""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from clearhead.api import load
from clearhead.checkpoints.weights.dequantize import count, dequantized
from clearhead.checkpoints.weights.quantization import Method, method_of
from clearhead.errors import UserError
from tests.small_models import model_of

Tensors = dict[str, Tensor]
MATRIX = torch.linspace(-1, 1, 64 * 32).reshape(32, 64)[torch.randperm(32, generator=torch.Generator().manual_seed(0))]
"""A matrix of 32 outputs and 64 inputs."""


def words(numbers: list[list[int]], bits: int, order: tuple[int, ...] | None = None) -> Tensor:
    """Rows of numbers as words of 32 bits, number `order[k]` of each word in the k-th place."""
    per = 32 // bits
    packed: list[list[int]] = []
    for row in numbers:
        found: list[int] = []
        for start in range(0, len(row), per):
            word = 0
            for place in range(per):
                word |= row[start + (order[place] if order else place)] << (bits * place)
            found.append(word - (1 << 32) if word >= 1 << 31 else word)
        packed.append(found)
    return torch.tensor(packed, dtype=torch.int32)


def random(shape: tuple[int, ...], high: int, seed: int) -> Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def scales(*shape: int) -> Tensor:
    return (torch.rand(shape, generator=torch.Generator().manual_seed(9)) / 8 + 0.01).half()


def by_rows(bits: int, *, below: bool, ordered: bool) -> tuple[Tensors, Tensor, dict[str, Any]]:
    q, z, s = random((64, 32), 2**bits, 1), random((2, 32), 2**bits - 1, 2) + 1, scales(2, 32)
    z = z.clamp(max=2**bits - 1)
    group = torch.arange(64) // 32 if ordered else random((64,), 2, 3)
    weight = torch.stack([s[group[i]].float() * (q[i] - z[group[i]]) for i in range(64)], 1)
    parts = {
        "qweight": words(q.T.tolist(), bits).T.contiguous(),
        "qzeros": words((z - int(below)).tolist(), bits),
        "scales": s,
        "g_idx": group.int(),
    }
    form = "gptq" if below else "gptq_v2"
    return parts, weight, {"quant_method": "gptq", "bits": bits, "group_size": 32, "checkpoint_format": form}


def by_columns() -> tuple[Tensors, Tensor, dict[str, Any]]:
    q, z, s = random((64, 32), 16, 1), random((2, 32), 16, 2), scales(2, 32)
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    weight = torch.stack([s[i // 32].float() * (q[i] - z[i // 32]) for i in range(64)], 1)
    parts = {"qweight": words(q.tolist(), 4, order), "qzeros": words(z.tolist(), 4, order), "scales": s}
    return parts, weight, {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True}


def without_zeros(kind: str) -> tuple[Tensors, Tensor, dict[str, Any]]:
    """A symmetric matrix whose zero points, 8, are not stored, and a method named in capitals."""
    parts, _, said = by_rows(4, below=True, ordered=True) if kind == "gptq" else by_columns()
    q = random((64, 32), 16, 1)
    weight = torch.stack([parts["scales"][i // 32].float() * (q[i] - 8) for i in range(64)], 1)
    less = {name: tensor for name, tensor in parts.items() if name not in ("qzeros", "g_idx")}
    return less, weight, {**said, "quant_method": kind.upper(), "sym": True, "zero_point": False}


def four_bits(*, nested: bool) -> tuple[Tensors, Tensor, dict[str, Any]]:
    table = torch.linspace(-1, 1, 16)
    q = random((2048,), 16, 1)
    absmax = torch.rand(32, generator=torch.Generator().manual_seed(5)) + 0.5
    parts: Tensors = {}
    state: dict[str, Any] = {"quant_type": "nf4", "blocksize": 64, "dtype": "float16", "shape": [32, 64]}
    if nested:
        levels, offset = torch.linspace(-1, 1, 256), 0.75
        codes = random((32,), 256, 6)
        top = torch.tensor([0.25])
        absmax = levels[codes] * top + offset
        parts |= {"weight.absmax": codes.to(torch.uint8), "weight.nested_absmax": top}
        parts |= {"weight.nested_quant_map": levels}
        state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": offset}
    else:
        parts["weight.absmax"] = absmax
    weight = torch.tensor([float(table[int(q[i])] * absmax[i // 64]) for i in range(2048)]).view(32, 64)
    pairs = [int(q[i]) * 16 + int(q[i + 1]) for i in range(0, 2048, 2)]
    parts |= {"weight": torch.tensor(pairs, dtype=torch.uint8)[:, None], "weight.quant_map": table}
    text = torch.tensor([*json.dumps(state).encode()], dtype=torch.uint8)
    parts["weight.quant_state.bitsandbytes__nf4"] = text
    return parts, weight, {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}


def eight_bits() -> tuple[Tensors, Tensor, dict[str, Any]]:
    q, top = random((32, 64), 255, 1).sub(127).to(torch.int8), torch.rand(32) + 0.5
    parts = {"weight": q, "SCB": top, "weight_format": torch.tensor(0, dtype=torch.uint8)}
    return parts, q.float() * top[:, None] / 127, {"quant_method": "bitsandbytes", "load_in_8bit": True}


def float8(kind: str) -> tuple[Tensors, Tensor, dict[str, Any]]:
    q = MATRIX.to(torch.float8_e4m3fn)
    if kind == "blocks":
        scale = torch.rand(2, 3) + 0.5  # blocks of 24 x 24, of which the last hold fewer
        weight = torch.tensor(
            [[float(q[i, j].float() * scale[i // 24, j // 24]) for j in range(64)] for i in range(32)]
        )
        return {"weight": q, "weight_scale_inv": scale}, weight, {"quant_method": "fp8", "weight_block_size": [24, 24]}
    if kind == "whole":
        parts = {"weight": q, "weight_scale_inv": torch.tensor(0.3), "activation_scale": torch.tensor(2.0)}
        return parts, q.float() * 0.3, {"quant_method": "fp8", "activation_scheme": "static"}
    scale = torch.rand(32, 1) + 0.5
    said = {"quant_method": "compressed-tensors", "format": "float-quantized"}
    return {"weight": q, "weight_scale": scale, "input_scale": torch.tensor(1.0)}, q.float() * scale, said


def compressed(*, zeros: bool) -> tuple[Tensors, Tensor, dict[str, Any]]:
    q, s = random((32, 64), 16, 1) - 8, scales(32, 2).bfloat16()
    z = random((32, 2), 16, 2) - 8 if zeros else torch.zeros(32, 2, dtype=torch.long)
    weight = torch.stack([s[:, j // 32].float() * (q[:, j] - z[:, j // 32]) for j in range(64)], 1)
    parts = {"weight_packed": words((q + 8).tolist(), 4), "weight_scale": s, "weight_shape": torch.tensor([32, 64])}
    if zeros:
        parts["weight_zero_point"] = words((z.T + 8).tolist(), 4).T.contiguous()
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": not zeros}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return parts, weight, {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": groups}


CASES: dict[str, tuple[Tensors, Tensor, dict[str, Any]]] = {
    "gptq": by_rows(4, below=True, ordered=True),
    "gptq-act-order": by_rows(4, below=True, ordered=False),
    "gptq-v2": by_rows(4, below=False, ordered=True),
    "gptq-8": by_rows(8, below=True, ordered=True),
    "gptq-2": by_rows(2, below=True, ordered=False),
    "gptq-symmetric": without_zeros("gptq"),
    "awq": by_columns(),
    "awq-symmetric": without_zeros("awq"),
    "nf4": four_bits(nested=False),
    "nf4-nested": four_bits(nested=True),
    "int8": eight_bits(),
    "fp8-blocks": float8("blocks"),
    "fp8-whole": float8("whole"),
    "fp8-rows": float8("rows"),
    "packed": compressed(zeros=False),
    "packed-zeros": compressed(zeros=True),
}


@pytest.mark.parametrize("name", CASES)
def test_a_packed_matrix(name: str) -> None:
    parts, weight, said = CASES[name]
    method = method_of({"quantization_config": said}, where="config.json")
    assert method is not None
    tensors = {f"x.q_proj.{part}": tensor for part, tensor in parts.items()} | {"x.norm.weight": torch.ones(3)}
    found = dequantized(tensors, method, torch.float32, where="x")
    assert found.keys() == {"x.q_proj.weight", "x.norm.weight"}
    torch.testing.assert_close(found["x.q_proj.weight"], weight, rtol=1e-6, atol=1e-7)
    assert count(tensors, method) == 2048
    halved = dequantized(tensors, method, torch.float16, where="x")["x.q_proj.weight"]
    assert torch.equal(halved, found["x.q_proj.weight"].half())


@pytest.mark.parametrize("name", CASES)
def test_parts_that_do_not_fit_together(name: str) -> None:
    parts, _, said = CASES[name]
    method = method_of({"quantization_config": said}, where="config.json")
    assert method is not None
    needed = [part for part in parts if part not in ("g_idx", "weight_zero_point", "weight_format")]
    needed = [part for part in needed if "activation" not in part and "input" not in part]
    for part in needed:
        less = {f"x.{other}": tensor for other, tensor in parts.items() if other != part}
        with suppress(UserError):
            found = dequantized(less, method, torch.float32, where="x")
            # The parts that are left have no place in a model, whose reader names them.
            assert any(not left.endswith("x.weight") for left in found)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"quant_method": "hqq"}, "quantization_config: expected plain weights or one of gptq, awq, .*, got hqq; try"),
        ({"quant_method": "gptq", "bits": 3}, "bits: expected 2 or 4 or 8, got 3; try"),
        (
            {"quant_method": "gptq", "checkpoint_format": "marlin"},
            "checkpoint_format: expected gptq or gptq_v2, got mar",
        ),
        ({"quant_method": "awq", "version": "gemv"}, "version: expected gemm, got gemv"),
        ({"quant_method": "compressed-tensors", "format": "marlin-24"}, "format: expected float-quantized or"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "expected the rows and columns of a block"),
        ([1], "quantization_config: expected a table"),
    ],
)
def test_methods_that_are_refused(said: Any, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        method_of({"quantization_config": said}, where="config.json")
    assert method_of({}, where="config.json") is None
    assert method_of({"quantization_config": {"quant_method": "fp8"}}, where="c") == Method("fp8")


def test_reordered_rows_need_their_groups() -> None:
    parts, _, said = by_rows(4, below=True, ordered=False)
    method = method_of({"quantization_config": {**said, "desc_act": True}}, where="config.json")
    assert method is not None
    less = {f"x.{name}": tensor for name, tensor in parts.items() if name != "g_idx"}
    with pytest.raises(UserError, match="x: expected g_idx, the group of each row, as desc_act=true says, got none"):
        dequantized(less, method, torch.float32, where="folder")


def test_biases_of_zeros_that_a_quantizer_added_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = model_of("llama-tiny").save(tmp_path / "plain")
    (folder / "MANIFEST.json").unlink()
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.0.self_attn.q_proj"
    added = {f"{name}.bias": torch.zeros(len(tensors[f"{name}.weight"]))}
    save_file(tensors | added, folder / "model.safetensors")
    load(folder)
    assert f"left out {name}.bias: a bias of zeros changes nothing" in caplog.text
    added[f"{name}.bias"][0] = 1
    save_file(tensors | added, folder / "model.safetensors")
    with pytest.raises(UserError, match=r"q_proj\.bias: expected no such tensor"):
        load(folder)


def test_a_folder(tmp_path: Path) -> None:
    """Every matrix of a model in eight bits: the folder computes what its dequantized copy does."""
    plain, packed = model_of("llama-tiny").save(tmp_path / "plain"), tmp_path / "packed"
    (plain / "MANIFEST.json").unlink()
    packed.mkdir()
    document = json.loads((plain / "config.json").read_text())
    tensors: Tensors = {}
    meant: Tensors = {}
    for name, tensor in load_file(plain / "model.safetensors").items():
        if not name.endswith("_proj.weight"):
            tensors[name] = meant[name] = tensor
            continue
        top = tensor.abs().amax(1)
        q = (tensor / top[:, None] * 127).round().to(torch.int8)
        tensors |= {name: q, f"{name.removesuffix('weight')}SCB": top}
        meant[name] = q.float() * top[:, None] / 127
    save_file(tensors, packed / "model.safetensors")
    save_file(meant, plain / "model.safetensors")
    said = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    (packed / "config.json").write_text(json.dumps(document | {"quantization_config": said, "dtype": "float32"}))
    ours, theirs = load(packed), load(plain)
    for (name, a), b in zip(ours.network.named_parameters(), theirs.network.parameters(), strict=True):
        assert torch.equal(a, b), name
    ours.save(tmp_path / "copy")
    assert "quantization_config" not in (tmp_path / "copy" / "config.json").read_text()
