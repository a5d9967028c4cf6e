"""Pickled weights: read, and never run."""

import json
import os
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from clearhead.checkpoints.weights import legacy
from clearhead.checkpoints.weights.safetensors import read
from clearhead.errors import UserError
from tests import processes

BIN, INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    return tmp_path / "model"


def put(path: Path, values: object, *, archive: bool = True) -> None:
    torch.save(values, path, _use_new_zipfile_serialization=archive)  # noqa: TID251


def some() -> dict[str, Tensor]:
    whole = torch.randn(6, 4)
    return {
        "a": torch.randn(3, 2).bfloat16(),
        "tied": whole,
        "tied_too": whole,
        "rows": whole[2:4],
        "transposed": whole.mT,
        "ids": torch.arange(3),
        "parameter": nn.Parameter(torch.randn(2)),
    }


def same(found: dict[str, Tensor], tensors: dict[str, Tensor]) -> bool:
    return found.keys() == tensors.keys() and all(
        found[n].dtype == tensors[n].dtype and torch.equal(found[n], tensors[n]) for n in found
    )


def refusal(folder: Path) -> str:
    with pytest.raises(UserError) as error:
        read(folder)
    message = str(error.value)
    assert "\n" not in message
    assert "Traceback" not in message
    assert message.startswith(str(folder))
    return message.removeprefix(f"{folder}/")


@pytest.mark.parametrize("archive", [True, False])
def test_one_file(folder: Path, archive: bool) -> None:
    """A write into a tensor changes neither another one nor the file."""
    tensors = some()
    put(folder / BIN, tensors, archive=archive)
    found = read(folder)
    assert same(found, tensors)
    found["tied"].zero_()
    assert torch.equal(found["tied_too"], tensors["tied"])
    assert same(read(folder), tensors)


def test_shards(folder: Path) -> None:
    tensors, places = some(), {}
    for number, names in enumerate((["a", "tied", "tied_too"], ["rows", "transposed", "ids", "parameter"])):
        put(folder / f"pytorch_model-{number}.bin", {name: tensors[name] for name in names})
        places |= dict.fromkeys(names, f"pytorch_model-{number}.bin")
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    assert same(read(folder), tensors)
    (folder / INDEX).write_text(json.dumps({"weight_map": places | {"ids": "pytorch_model-0.bin"}}))
    assert refusal(folder).startswith(f"pytorch_model-0.bin:ids: expected this tensor, as {INDEX} says, got")
    (folder / INDEX).write_text(json.dumps({"weight_map": places | {"ids": "../x.bin"}}))
    assert refusal(folder).startswith(f"{INDEX}:ids: expected the name of a .bin file in this folder, got ")
    (folder / INDEX).write_text(json.dumps({"weight_map": {"ids": "x.bin"}}))
    assert refusal(folder).startswith("x.bin: expected a file, got none")


def test_safetensors_go_first(folder: Path) -> None:
    from safetensors.torch import save_file

    save_file({"a": torch.ones(1)}, folder / "model.safetensors")
    (folder / BIN).write_bytes(b"not looked at")
    assert read(folder)["a"] == 1
    assert legacy.read(folder.parent) is None


# --- what is refused ---


class Payload:
    """Pickles as a call of `os.system`."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (self.command,)


PAYLOADS = ["archive", "plain", "nested", "protocol 0"]
AUDIT = """
import sys
import safetensors.torch
import torch
from pathlib import Path
from clearhead.checkpoints.weights import legacy
from clearhead.errors import UserError

RUNS = {"os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.Popen", "socket.connect", "pickle.find_class"}
seen = []
sys.addaudithook(lambda event, _: seen.append(event) if event in RUNS else None)
for source in sys.argv[1:]:
    try:
        legacy.read_file(Path(source))
        sys.exit("read")
    except UserError as error:
        print(error)
sys.exit(f"{seen}" if seen else 0)
"""


def put_payload(path: Path, kind: str, mark: Path) -> None:
    payload = Payload(f"touch {mark}")
    match kind:
        case "protocol 0":
            path.write_bytes(b"cposix\nsystem\n(S'touch %s'\ntR." % str(mark).encode())
        case "nested":
            put(path, {"a": torch.ones(1), "b": [payload]}, archive=False)
        case _:
            put(path, {"a": payload}, archive=kind == "archive")


def test_a_payload_does_not_run(folder: Path) -> None:
    mark = folder / "ran"
    for kind in PAYLOADS:
        put_payload(folder / f"{kind}.bin", kind, mark)
    put_payload(folder / BIN, "archive", mark)
    assert refusal(folder).startswith(f"{BIN}: expected tensors only, got a call of posix.system; try")

    arguments = [sys.executable, "-c", AUDIT, *folder.glob("*.bin")]
    done = processes.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(PAYLOADS) + 1
    assert all(": expected tensors only, got a call of posix.system; try" in line for line in lines)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([torch.ones(1)], ": expected a table of tensors, got list"),
        ({"a": torch.ones(1), "epoch": 3}, ":epoch: expected a tensor, got int"),
        ({"model": {"a": torch.ones(1)}}, ":model: expected a tensor, got dict"),
        ({3: torch.ones(1)}, ":3: expected the name of a tensor, got int"),
        ({"a": torch.ones(2).to_sparse()}, ":a: expected a tensor of plain numbers, got another kind"),
        ({"a": torch.ones(2, device="meta")}, ":a: expected a tensor of plain numbers, got another kind"),
    ],
)
def test_what_is_not_a_tensor(values: object, expected: str, folder: Path) -> None:
    put(folder / BIN, values)
    assert refusal(folder).startswith(f"{BIN}{expected}")


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x80\x02}", b"PK\x03\x04" + bytes(50), b"\xff" * 1000])
def test_a_broken_file(content: bytes, folder: Path) -> None:
    (folder / BIN).write_bytes(content)
    assert refusal(folder).startswith(f"{BIN}: expected a file that torch wrote, got ")


def test_a_truncated_file(folder: Path) -> None:
    put(folder / BIN, {"a": torch.ones(10_000)})
    with (folder / BIN).open("rb+") as file:
        file.truncate(20_000)
    assert refusal(folder).startswith(f"{BIN}: expected a file that torch wrote, got ")


def test_a_compressed_archive(folder: Path) -> None:
    put(folder / "x", {"a": torch.zeros(10_000)})
    with zipfile.ZipFile(folder / "x") as old, zipfile.ZipFile(folder / BIN, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            new.writestr(entry.filename, old.read(entry))
    assert refusal(folder).startswith(f"{BIN}: expected an archive as torch writes it, got a compressed one")
