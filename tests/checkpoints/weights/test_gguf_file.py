"""GGUF files: every type of number, the header against the format's own reader, and what is no such file."""

import struct
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from clearhead.api import load, named_config
from clearhead.checkpoints.weights.gguf import GgufFile, library
from clearhead.errors import UserError
from clearhead.model import Tokens
from tests.gguf_files import KINDS, SIZES, gguf, packed, plain, straight, write

SHAPES = {
    "attn_q": (256, 256),
    "attn_k": (128, 256),
    "attn_v": (128, 256),
    "attn_output": (256, 256),
    "ffn_gate": (512, 256),
    "ffn_up": (512, 256),
    "ffn_down": (256, 512),
}
NAMES = dict(zip(SHAPES, ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"), strict=True))
CONFIG = (
    '{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 40, "hidden_size": 256,'
    ' "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,'
    ' "rms_norm_eps": 1e-5, "max_position_embeddings": 64}'
)
IDS = torch.tensor([[1, 5, 39, 7, 7, 0]])


def described(**more: Any) -> dict[str, Any]:
    return {f"llama.{key}": value for key, value in (SIZES | more).items()}


def made(folder: Path, *, each: int = 0) -> tuple[Path, dict[str, Tensor]]:
    """A file with a matrix in each type, and the tensors that it stands for by the names of checkpoints."""
    kinds = cycle(KINDS)
    tensors: dict[str, tuple[Any, str]] = {}
    meant: dict[str, Tensor] = {}
    for name, other in (("token_embd", "model.embed_tokens"), ("output", "lm_head")):
        array = packed((40, 256), kind := next(kinds), len(tensors))
        tensors[f"{name}.weight"], meant[f"{other}.weight"] = (array, kind), plain(array, kind)
    norms = {"output_norm": "model.norm"}
    for i in range(2):
        norms |= {f"blk.{i}.attn_norm": f"model.layers.{i}.input_layernorm"}
        norms |= {f"blk.{i}.ffn_norm": f"model.layers.{i}.post_attention_layernorm"}
        for name, shape in SHAPES.items():
            array = packed(shape, kind := next(kinds), len(tensors))
            part = "self_attn" if name.startswith("attn") else "mlp"
            tensors[f"blk.{i}.{name}.weight"] = (array, kind)
            heads = {"attn_q": 4, "attn_k": 2}.get(name)
            found = plain(array, kind)
            meant[f"model.layers.{i}.{part}.{NAMES[name]}.weight"] = straight(found, heads) if heads else found
    for i, (name, other) in enumerate(norms.items()):
        norm = np.random.default_rng(100 + i).random(256).astype(np.float32)
        tensors[f"{name}.weight"], meant[f"{other}.weight"] = (norm, "F32"), torch.from_numpy(norm)
    return write(folder / "model.gguf", described(), tensors, name="llama", each=each), meant


def test_every_type_of_number(tmp_path):
    path, meant = made(tmp_path)
    folder = tmp_path / "reference"
    folder.mkdir()
    (folder / "config.json").write_text(CONFIG)
    save_file({name: tensor.contiguous() for name, tensor in meant.items()}, folder / "model.safetensors")
    ours, reference = load(path), load(folder)
    with torch.no_grad():
        logits = ours.network(Tokens(IDS))
        assert torch.equal(logits, reference.network(Tokens(IDS)))
        assert logits.dtype == torch.float32
        halved = load(tmp_path / "model.gguf", dtype="bfloat16")
        assert all(parameter.dtype == torch.bfloat16 for parameter in halved.network.parameters())
        assert torch.equal(halved.network(Tokens(IDS)), load(folder, dtype="bfloat16").network(Tokens(IDS)))
    assert named_config(str(path)) == named_config(str(folder))


def test_the_header_is_what_the_library_reads(tmp_path):
    more = {"list": [1, 2, 3], "texts": ["a", "ü"], "yes": True, "negative": [-1, 5], "empty.no": False}
    path = write(tmp_path / "x.gguf", described() | more, {"a": (np.ones((3, 32), np.float32), "F32")}, name="llama")
    reader, file = gguf.GGUFReader(path), GgufFile.open(path)
    theirs = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert file.metadata["llama.attention.layer_norm_rms_epsilon"] == 1e-5
    assert {k: pytest.approx(v, rel=1e-7) if isinstance(v, float) else v for k, v in theirs.items()} == file.metadata
    (tensor,) = reader.tensors
    assert file.tensors["a"].start == tensor.data_offset
    assert file.tensors["a"].shape == (3, 32)


def test_plain_numbers_are_mapped_and_a_write_stays_here(tmp_path):
    path = write(tmp_path / "x.gguf", described(), {"a": (np.ones((2, 4), np.float32), "F32")}, name="llama")
    before = path.read_bytes()
    GgufFile.open(path).read("a", torch.float32).fill_(7)
    assert path.read_bytes() == before
    assert torch.equal(GgufFile.open(path).read("a", torch.float32), torch.ones(2, 4))


# --- bad input -----------------------------------------------------------------------------------------------------


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as error:
        load(path)
    message = str(error.value)
    assert "\n" not in message
    assert message.startswith(str(path))
    return message.removeprefix(str(path)).removeprefix(":").strip()


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> bytes:
    tensors = {"token_embd.weight": (packed((40, 256), "Q4_0", 0), "Q4_0")}
    folder = tmp_path_factory.mktemp("small")
    return write(folder / "x.gguf", described(), tensors, name="llama").read_bytes()


def test_a_file_that_is_cut_short(small: bytes, tmp_path):
    path = tmp_path / "x.gguf"
    for size in [*range(0, 600, 13), len(small) - 64]:
        path.write_bytes(small[:size])
        assert refusal(path).startswith("expected a whole GGUF file, got "), size


def test_bytes_that_changed(small: bytes, tmp_path):
    """Every header with a changed byte is refused in one line, or says something else that is complete."""
    path, random = tmp_path / "x.gguf", np.random.default_rng(0)
    for _ in range(60):
        content = bytearray(small)
        content[random.integers(600)] = random.integers(256)
        path.write_bytes(content)
        assert refusal(path)


def counted(content: bytes, n: int) -> bytes:
    return content[:16] + struct.pack("<Q", n) + content[24:]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda c: b"GGML" + c[4:], "expected a whole GGUF file, got a file of another kind; try"),
        (lambda c: c[:4] + struct.pack("<I", 1) + c[8:], "expected a whole GGUF file, got version 1; try"),
        (lambda c: c[:4] + struct.pack(">I", 3) + c[8:], "expected a whole GGUF file, got one for machines with the"),
        (lambda c: counted(c, 1 << 60), "expected a whole GGUF file, got "),
        (lambda c: c[:8] + struct.pack("<Q", 1 << 60) + c[16:], "expected a whole GGUF file, got "),
        (lambda c: c.replace(b"llama", b"lhama"), "general.architecture: expected one of llama, qwen2"),
        (lambda c: c.replace(b"block_count", b"block_tnuoc"), "llama.block_count: expected this value, got none"),
        (lambda c: c.replace(b"token_embd", b"token_embs"), "token_embd.weight: expected a tensor, got none"),
    ],
)
def test_what_is_no_such_file(change: Any, expected: str, small: bytes, tmp_path):
    path = tmp_path / "x.gguf"
    path.write_bytes(change(small))
    assert refusal(path).startswith(expected)


def test_a_type_that_is_not_dequantized(small: bytes, tmp_path):
    path = tmp_path / "x.gguf"
    at = small.index(b"token_embd.weight") + len(b"token_embd.weight") + 4 + 16
    assert small[at : at + 4] == struct.pack("<I", 2)
    path.write_bytes(small[:at] + struct.pack("<I", 999) + small[at + 4 :])
    assert refusal(path).startswith("expected a whole GGUF file, got token_embd.weight of the unknown type 999")
    path.write_bytes(small[:at] + struct.pack("<I", 15) + small[at + 4 :] + b"\0" * 99_999)
    assert refusal(path).startswith("token_embd.weight: expected a type that the library gguf dequantizes, got Q8_K;")


def test_what_a_file_asks_for_and_is_not_here(tmp_path):
    tensors = {"token_embd.weight": (np.ones((40, 256), np.float32), "F32")}
    cases = {
        "expert_count": (8, "llama.expert_count: expected 0, the only value that is supported, got 8"),
        "attention.new_trick": (1.0, "llama.attention.new_trick: expected none, got 1.0"),
        "rope.scaling.type": ("su", "rope.scaling.type: expected none, linear or yarn, got 'su'"),
        "rope.dimension_count": (32, "rope.dimension_count: expected 64, got 32"),
        "attention.value_length": (32, "attention.value_length: expected 64, as keys have, got 32"),
    }
    for key, (value, expected) in cases.items():
        more = {"rope.scaling.factor": 2.0} if key == "rope.scaling.type" else {}
        path = write(tmp_path / "x.gguf", described(**{key: value}, **more), tensors, name="llama")
        assert refusal(path).startswith(expected)


PARTS = [f"model-0000{i}-of-00004.gguf" for i in (1, 2, 3, 4)]


@pytest.fixture
def several(tmp_path) -> Path:
    """A model in several files."""
    made(tmp_path, each=6)
    assert sorted(path.name for path in tmp_path.iterdir()) == PARTS
    return tmp_path


def test_a_model_in_several_files_is_one(several: Path, tmp_path_factory):
    whole = GgufFile.open(made(tmp_path_factory.mktemp("whole"))[0])
    for given in (several, *(several / name for name in PARTS)):
        found = load(given).network
        with torch.no_grad():
            assert torch.equal(found(Tokens(IDS)), load(whole.path).network(Tokens(IDS)))
    parts = GgufFile.open(several / PARTS[2])
    assert parts.path == several / PARTS[0]
    assert parts.tensors.keys() == whole.tensors.keys()
    assert {stored.part for stored in parts.tensors.values()} == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("harm", "expected"),
    [
        (lambda f: (f / PARTS[1]).unlink(), f"{PARTS[1]}: expected this part of the model, got no such file; put all"),
        (lambda f: (f / PARTS[0]).unlink(), f"{PARTS[0]}: expected this part of the model, got no such file; put all"),
        (lambda f: (f / PARTS[3]).write_bytes(b"GGUF"), f"{PARTS[3]}: expected a whole GGUF file, got "),
        (
            lambda f: (f / PARTS[2]).write_bytes((f / PARTS[1]).read_bytes()),
            f"{PARTS[2]}: expected part 2 of 4, from 0, got split.no=1 and split.count=4",
        ),
        (
            lambda f: (f / PARTS[0]).rename(f / "model.gguf") and [(f / name).unlink() for name in PARTS[1:]],
            "model.gguf: expected a name such as MODEL-00001-of-00004.gguf for a part of 4, got another",
        ),
    ],
)
def test_parts_that_do_not_fit(harm: Any, expected: str, several: Path):
    harm(several)
    with pytest.raises(UserError) as error:
        load(several)
    assert str(error.value).startswith(f"{several}/{expected}")
    assert "\n" not in str(error.value)


def test_parts_of_two_models(several: Path):
    (several / "other-00001-of-00002.gguf").write_bytes((several / PARTS[0]).read_bytes())
    assert refusal(several).startswith("expected one GGUF file, got model-00001-of-00004.gguf, ")


def test_a_folder_with_several(tmp_path, small: bytes):
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(small)
    assert refusal(tmp_path) == f"expected one GGUF file, got a.gguf, b.gguf; try {tmp_path / 'a.gguf'}"


def test_the_library_is_missing(small: bytes, tmp_path, monkeypatch):
    path = tmp_path / "x.gguf"
    path.write_bytes(small)
    monkeypatch.setitem(__import__("sys").modules, "gguf", None)
    with pytest.raises(UserError, match=r"expected the package gguf, .*; try pip install 'clearhead\[gguf\]'$"):
        load(path)
    assert library
