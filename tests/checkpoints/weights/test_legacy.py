"""Pickled weights: read once in another process, and never run."""

import contextlib
import io
import json
import os
import subprocess
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


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "clearhead" / "converted"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    return tmp_path / "model"


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where what is converted is tested, not the process that converts it: each one imports torch."""

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            code = legacy.main(command[command.index("-m") + 2 :])
        return subprocess.CompletedProcess(command, code, said.getvalue().encode())

    monkeypatch.setattr(subprocess, "run", run)


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


def refusal(folder: Path, cache: Path) -> str:
    with pytest.raises(UserError) as error:
        read(folder)
    message = str(error.value)
    assert "\n" not in message
    assert "Traceback" not in message
    assert message.startswith(str(folder))
    assert list(cache.glob("*")) == []
    return message.removeprefix(f"{folder}/")


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("archive", [True, False])
def test_one_file(folder: Path, cache: Path, archive: bool) -> None:
    tensors = some()
    put(folder / BIN, tensors, archive=archive)
    assert same(read(folder), tensors)
    assert len(list(cache.iterdir())) == 1


@pytest.mark.usefixtures("in_this_process")
def test_shards(folder: Path, cache: Path) -> None:
    tensors, places = some(), {}
    for number, names in enumerate((["a", "tied", "tied_too"], ["rows", "transposed", "ids", "parameter"])):
        put(folder / f"pytorch_model-{number}.bin", {name: tensors[name] for name in names})
        places |= dict.fromkeys(names, f"pytorch_model-{number}.bin")
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    assert same(read(folder), tensors)
    for path in cache.iterdir():
        for file in path.iterdir():
            file.unlink()
        path.rmdir()

    (folder / INDEX).write_text(json.dumps({"weight_map": places | {"ids": "pytorch_model-0.bin"}}))
    assert refusal(folder, cache).startswith(f"pytorch_model-0.bin:ids: expected this tensor, as {INDEX} says, got")
    (folder / INDEX).write_text(json.dumps({"weight_map": places | {"ids": "../x.bin"}}))
    assert refusal(folder, cache).startswith(f"{INDEX}:ids: expected the name of a .bin file in this folder, got ")
    (folder / INDEX).write_text(json.dumps({"weight_map": places | {"ids": "x.bin"}}))
    assert refusal(folder, cache).startswith("x.bin: expected a file, got none")


@pytest.mark.usefixtures("in_this_process")
def test_converted_once(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder / BIN, {"a": torch.zeros(2)})
    first = legacy.converted(folder)
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", lambda *a, **k: pytest.fail("converted again"))
        assert legacy.converted(folder) == first
        (folder.parent / "link").symlink_to(folder)
        assert legacy.converted(folder.parent / "link") == first
    put(folder / BIN, {"a": torch.ones(3)})
    assert read(folder)["a"].sum() == 3
    assert len(list(cache.iterdir())) == 2


def test_safetensors_go_first(folder: Path, cache: Path) -> None:
    from safetensors.torch import save_file

    save_file({"a": torch.ones(1)}, folder / "model.safetensors")
    (folder / BIN).write_bytes(b"not looked at")
    assert read(folder)["a"] == 1
    assert legacy.converted(folder.parent) is None
    assert not cache.exists()


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
from clearhead.checkpoints.weights import legacy

RUNS = {"os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.Popen", "socket.connect", "pickle.find_class"}
seen = []
sys.addaudithook(lambda event, _: seen.append(event) if event in RUNS else None)
*sources, target = sys.argv[1:]
codes = [legacy.main([source, target]) for source in sources]
sys.exit(f"{codes} {seen}" if seen or set(codes) != {2} else 0)
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


@pytest.mark.usefixtures("in_this_process")
def test_a_payload_does_not_run(folder: Path, cache: Path) -> None:
    mark = folder / "ran"
    for kind in PAYLOADS:
        put_payload(folder / f"{kind}.bin", kind, mark)
    put_payload(folder / BIN, "archive", mark)
    assert refusal(folder, cache).startswith(f"{BIN}: expected tensors only, got a call of posix.system; try")

    arguments = [sys.executable, "-c", AUDIT, *folder.glob("*.bin"), folder]
    done = processes.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(PAYLOADS) + 1
    assert all(": expected tensors only, got a call of posix.system; try" in line for line in lines)
    assert not mark.exists()


def refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What the other process says, without the other process."""
    assert legacy.main([str(folder / BIN), str(folder)]) == 2
    message = capsys.readouterr().out.removesuffix("\n")
    assert "\n" not in message
    assert not (folder / "pytorch_model.safetensors").exists()
    return message.removeprefix(f"{folder}/")


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
def test_what_is_not_a_tensor(values: object, expected: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(folder / BIN, values)
    assert refused(folder, capsys).startswith(f"{BIN}{expected}")


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x80\x02}", b"PK\x03\x04" + bytes(50), b"\xff" * 1000])
def test_a_broken_file(content: bytes, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / BIN).write_bytes(content)
    assert refused(folder, capsys).startswith(f"{BIN}: expected a file that torch wrote, got ")


def test_a_compressed_archive(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(folder / "x", {"a": torch.zeros(10_000)})
    with zipfile.ZipFile(folder / "x") as old, zipfile.ZipFile(folder / BIN, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            new.writestr(entry.filename, old.read(entry))
    assert refused(folder, capsys).startswith(f"{BIN}: expected an archive as torch writes it, got a compressed one")


def test_nothing_is_imported_from_the_current_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder / BIN, {"a": torch.ones(1)})
    for name in ("torch", "safetensors", "clearhead"):
        (folder / f"{name}.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(folder)
    assert read(folder)["a"] == 1


def test_a_reader_that_ends_or_does_not(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder / BIN, {"a": torch.ones(1)})
    run = subprocess.run
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", lambda a, **k: run([a[0], "-c", "import os; os.abort()"], **k))
        assert "but its reader ended with signal 6; try" in refusal(folder, cache)
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", lambda a, **k: run(a, **(k | {"timeout": 0.01})))
        assert refusal(folder, cache).startswith(f"{BIN}: expected to read it in 120 s, got no result; try")


def test_no_place_for_it(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder / BIN, {"a": torch.ones(1)})
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError) as error:
        read(folder)
    place = tmp_path / "file" / "clearhead" / "converted"
    remedy = "try another folder as XDG_CACHE_HOME, or safetensors"
    assert str(error.value) == f"{folder / BIN}: expected to write it to {place}, got Not a directory; {remedy}"


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.skipif(sys.platform == "win32", reason="limits the size of a file")
def test_no_room_for_it(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    put(folder / BIN, {"a": torch.ones(100_000)})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        assert refusal(folder, cache).startswith(f"{BIN}: expected to write it to {cache}, got File too large; try")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
