"""Weight files: mapped and private, exact, and refused in one line when they are not what they should be."""

import json
import struct
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

from clearhead.checkpoints.weights.safetensors import read, shards
from clearhead.errors import UserError
from tests import processes

MODEL, INDEX = "model.safetensors", "model.safetensors.index.json"


def some() -> dict[str, Tensor]:
    dtypes = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    return {
        **{f"f.{i}": torch.randn(3, i + 1).to(dtype) for i, dtype in enumerate(dtypes)},
        "ids": torch.arange(7),
        "mask": torch.tensor([True, False]),
        "scalar": torch.tensor(2.5),
        "none": torch.empty(0, 4),
    }


def equal(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(a[n].dtype == b[n].dtype and torch.equal(a[n], b[n]) for n in a)


def saved(folder: Path, tensors: Mapping[str, Tensor], *, limit_bytes: int) -> list[str]:
    files, index = shards(tensors, limit_bytes=limit_bytes)
    for file, part in files.items():
        save_file(part, folder / file)
    if index is not None:
        (folder / INDEX).write_text(json.dumps(index))
    return list(files)


def refusal(folder: Path) -> str:
    with pytest.raises(UserError) as error:
        read(folder)
    message = str(error.value)
    assert "\n" not in message
    assert message.startswith(str(folder))
    return message.removeprefix(f"{folder}").removeprefix("/")


# --- what is written is read ---


@pytest.mark.parametrize("limit", [1 << 20, 60, 1])
def test_there_and_back(limit: int, tmp_path):
    tensors = some()
    files = saved(tmp_path, tensors, limit_bytes=limit)
    if limit == 1 << 20:
        assert files == [MODEL]
    else:
        assert len(files) > 2
        assert files[0] == f"model-00001-of-{len(files):05}.safetensors"
        index = json.loads((tmp_path / INDEX).read_text())
        assert index["metadata"] == {"total_size": sum(t.nbytes for t in tensors.values())}
        assert index["weight_map"].keys() == tensors.keys()
    assert equal(read(tmp_path), tensors)


def test_parts_of_one_storage_count_each(tmp_path):
    whole = torch.randn(4, 100)
    files, _ = shards({str(i): row for i, row in enumerate(whole)}, limit_bytes=800)
    assert [list(part) for part in files.values()] == [["0", "1"], ["2", "3"]]


def test_the_links_of_a_cache(tmp_path):
    """As the hub's cache lays them out: snapshots/…/name -> ../../blobs/…"""
    blobs, folder = tmp_path / "blobs", tmp_path / "snapshots" / "1"
    blobs.mkdir()
    folder.mkdir(parents=True)
    tensors = some()
    for number, file in enumerate([*saved(blobs, tensors, limit_bytes=60), INDEX]):
        (blobs / file).rename(blobs / str(number))
        (folder / file).symlink_to(Path("../../blobs") / str(number))
    assert equal(read(folder), tensors)


def test_what_is_written_into_a_tensor_stays_there(tmp_path):
    save_file({"a": torch.zeros(5000), "b": torch.zeros(5000)}, tmp_path / MODEL)
    before = (tmp_path / MODEL).read_bytes()
    first, second = read(tmp_path), read(tmp_path)
    first["a"].add_(1)
    assert first["a"].sum() == 5000
    assert second["a"].sum() == first["b"].sum() == 0
    del first, second
    assert (tmp_path / MODEL).read_bytes() == before


RSS = """
import sys
from pathlib import Path
import torch
from clearhead.checkpoints.weights.safetensors import read
def rss(): return int(next(l for l in open("/proc/self/status") if l.startswith("VmRSS")).split()[1]) // 1024
read(Path(sys.argv[1]))  # what the library itself takes
before = rss()
tensors = read(Path(sys.argv[1]))
mapped = rss() - before
sum(t.sum() for t in tensors.values())
print(mapped, rss() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc for memory")
def test_memory_fills_as_it_is_looked_at(tmp_path):
    save_file({str(i): torch.ones(1 << 20) for i in range(16)}, tmp_path / MODEL)  # 64 MB
    done = processes.run([sys.executable, "-c", RSS, tmp_path], capture_output=True, text=True, check=True)
    mapped, touched = map(int, done.stdout.split())
    assert mapped <= 2
    assert 60 <= touched <= 72


# --- what is refused ---


def header(about: object, data: bytes = b"") -> bytes:
    text = about if isinstance(about, bytes) else json.dumps(about).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(dtype: str, shape: list[int], end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage",
        b"\xff" * 100,
        header(b"{"),
        header({"a": tensor("F32", [2], 8)}, bytes(7)),
        header({"a": tensor("F32", [2], 8)}, bytes(9)),
        header({"a": tensor("F32", [10**9, 10**9], 8)}, bytes(8)),
        header({"a": tensor("F32", [1 << 62, 4], 0)}),
        header({"a": tensor("F99", [2], 8)}, bytes(8)),
        header(b'{"a":' * 2000),
        struct.pack("<Q", 1 << 50) + b"{}",
    ],
)
def test_a_broken_file(content: bytes, tmp_path):
    (tmp_path / MODEL).write_bytes(content)
    assert refusal(tmp_path).startswith(f"{MODEL}: expected a whole safetensors file, got ")


@pytest.mark.parametrize(("dtype", "shape"), [("F8_E4M3", [8]), ("F4", [16]), ("C64", [1]), ("U16", [4])])
def test_a_dtype_that_is_not_read(dtype: str, shape: list[int], tmp_path):
    (tmp_path / MODEL).write_bytes(header({"x.y": tensor(dtype, shape, 8)}, bytes(8)))
    assert refusal(tmp_path).startswith(f"{MODEL}:x.y: expected one of F64, F32, ")
    assert f"got {dtype}; try" in refusal(tmp_path)


def test_no_weights(tmp_path):
    assert refusal(tmp_path).startswith(f": expected {MODEL} or {INDEX}, got neither; try")
    (tmp_path / MODEL).mkdir()
    assert refusal(tmp_path).startswith(f"{MODEL}: expected a regular file")


def test_broken_shards(tmp_path):
    first, second, *_ = saved(tmp_path, {"a": torch.ones(9), "b": torch.ones(9), "c": torch.ones(9)}, limit_bytes=36)
    whole, index = (tmp_path / second).read_bytes(), (tmp_path / INDEX).read_text()

    (tmp_path / second).write_bytes(whole[:-1])
    assert refusal(tmp_path).startswith(f"{second}: expected a whole safetensors file")
    (tmp_path / second).unlink()
    assert refusal(tmp_path).startswith(f"{second}: expected a file, got none")
    (tmp_path / second).write_bytes(whole)

    flipped = index.replace(first, "?").replace(second, first).replace("?", second)
    (tmp_path / INDEX).write_text(flipped)
    assert refusal(tmp_path).startswith(f"{second}:a: expected this tensor, as {INDEX} says, got none")
    without = json.loads(index)
    without["weight_map"]["b2"] = without["weight_map"].pop("b")
    (tmp_path / INDEX).write_text(json.dumps(without))
    assert refusal(tmp_path).startswith(f"{second}:b2: expected this tensor")
    (tmp_path / INDEX).write_text(index.replace(first, f"../{tmp_path.name}/{first}"))
    assert refusal(tmp_path).startswith(f"{INDEX}:a: expected the name of a .safetensors file in this folder, got '../")


def test_an_extra_tensor_in_a_shard(tmp_path):
    first, *_ = saved(tmp_path, {"a": torch.ones(9), "b": torch.ones(9)}, limit_bytes=36)
    save_file({"a": torch.ones(9), "b": torch.zeros(9)}, tmp_path / first)
    assert refusal(tmp_path).startswith(f"{first}:b: expected no tensor that {INDEX} places elsewhere")


@given(st.integers(0, 10**6), st.integers(0, 255))
def test_a_changed_byte_is_refused_or_read(tmp_path_factory, where: int, byte: int):
    """And what is read has the shapes that the file has room for: nothing else is touched."""
    folder = tmp_path_factory.getbasetemp()
    torch.manual_seed(0)
    save_file(some(), folder / MODEL)
    content = bytearray((folder / MODEL).read_bytes())
    content[where % len(content)] = byte
    (folder / MODEL).write_bytes(content)
    try:
        assert sum(t.nbytes for t in read(folder).values()) <= len(content)
    except UserError:
        refusal(folder)
