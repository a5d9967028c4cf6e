"""JSON that is plainly one object is read; everything else is refused in one line that names the file and the key."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.checkpoints.weights.documents import Index, is_there, read_json
from clearhead.errors import UserError


def put(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(UserError) as error:
        read_json(path, **options)
    message = str(error.value)
    assert "\n" not in message
    assert message.startswith(f"{path}:")
    return message.removeprefix(str(path))


def test_an_object(tmp_path):
    document = {"a": [1, 2.5, {"b": None}], "ü": "\u2028", "a.b": {"a": True}}
    assert read_json(put(tmp_path / "x.json", json.dumps(document))) == document
    assert read_json(put(tmp_path / "x.json", json.dumps(document, ensure_ascii=False))) == document


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"a": 1, "b": {"c": 1, "d": 2, "c": 1}}', ":c: expected each key once, got it again"),
        ('{"a": 1, "a": 1}', ":a: expected each key once"),
        ('{"a": NaN}', ":a: expected finite numbers, got NaN or infinity"),
        ('{"a": [[1, -Infinity]]}', ":a: expected finite numbers"),
        ('{"a": {"b": 1e999}}', ":b: expected finite numbers"),
        ("[1]", ": expected a JSON object, got list"),
        ("NaN", ": expected a JSON object, got float"),
        ('{"a": 1,\n "b"}', ":2: expected JSON, got expecting ':' delimiter (column 5)"),
        ("", ":1: expected JSON, got expecting value"),
        (b'{"a": "\xe4"}', ": expected UTF-8, got the byte 0xE4"),
        ('{"a": 1}'.encode("utf-16"), ": expected UTF-8, got the byte 0xFF"),
        (b'\xef\xbb\xbf{"a": 1}', ":1: expected JSON, got unexpected UTF-8 BOM"),
        ('{"a": ' * 5000 + "1" + "}" * 5000, ": expected at most 100 levels of tables and lists, got more"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", ": expected at most 100 levels of tables and lists, got more"),
        ('{"a": ' + "9" * 5000 + "}", ": expected numbers, got one of thousands of digits"),
        ('{"a\\n\\u001b[31m": NaN}', ":a ?[31m: expected finite"),
        ('{"\\ud800": NaN}', ":?: expected finite"),
    ],
)
def test_what_is_refused(content: str | bytes, expected: str, tmp_path):
    assert refusal(put(tmp_path / "x.json", content)).startswith(expected)


def test_size_is_looked_at_first(tmp_path):
    path = put(tmp_path / "x.json", '{"a": 1}  ')
    assert read_json(path, limit=10) == {"a": 1}
    assert refusal(path, limit=9).startswith(": expected at most 9 bytes, got 10; try")
    with path.open("wb") as file:
        file.truncate(1 << 40)  # sparse: takes no room
    assert "got 1,099,511,627,776" in refusal(path)


def test_only_regular_files(tmp_path):
    assert ": expected a file, got none; try" in refusal(tmp_path / "x.json")
    assert ": expected a regular file, got something else" in refusal(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert ": expected a regular file, got something else" in refusal(tmp_path / "pipe")
    with pytest.raises(UserError, match=r"x: expected to read it, got File name too long; check the folder"):
        is_there(tmp_path / ("x" * 300))
    (tmp_path / "link").symlink_to(put(tmp_path / "blob", "{}"))
    assert read_json(tmp_path / "link") == {}


@given(st.binary(max_size=40) | st.text('{}[]",:0123eNa\\u ', max_size=40).map(str.encode))
def test_any_bytes_are_an_object_or_one_line(tmp_path_factory, content: bytes):
    path = put(tmp_path_factory.getbasetemp() / "any.json", content)
    try:
        assert isinstance(read_json(path), dict)
    except UserError:
        refusal(path)


# --- the index of shards ---


def index(folder: Path, table: object) -> Path:
    return put(folder / "model.safetensors.index.json", json.dumps({"metadata": {}, "weight_map": table}))


def test_an_index(tmp_path):
    found = Index.read(index(tmp_path, {"b": "2.st", "a": "1.st", "c": "2.st"}), suffix=".st")
    assert found.shards == {"2.st": {"b", "c"}, "1.st": {"a"}}
    found.check("2.st", ["c", "b"])
    with pytest.raises(UserError, match=r"2\.st:b: expected this tensor, as model.safetensors.index.json says, got"):
        found.check("2.st", ["c"])
    with pytest.raises(UserError, match=r"2\.st:a: expected no tensor that model.safetensors.index.json places else"):
        found.check("2.st", ["c", "b", "a"])


@pytest.mark.parametrize(
    "file",
    ["../x.st", "/x.st", "a/x.st", "a\\x.st", "..", ".st", "C:x.st", "x.st\n", "x.bin", "~x.st", "", 3, None, ["x.st"]],
)
def test_a_shard_is_a_plain_name(file: object, tmp_path):
    path = index(tmp_path, {"a": "x.st", "b": file})
    with pytest.raises(UserError) as error:
        Index.read(path, suffix=".st")
    assert str(error.value).startswith(f"{path}:b: expected the name of a .st file in this folder, got ")


@pytest.mark.parametrize("table", [{}, [], None, "x.st"])
def test_an_index_of_nothing(table: object, tmp_path):
    with pytest.raises(UserError, match="json:weight_map: expected a table of tensors and their files"):
        Index.read(index(tmp_path, table), suffix=".st")
