"""Folders of tiny models of every family, to be spoilt, and what may and may not happen when one is opened."""

import json
import os
import resource
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import clearhead
from clearhead.api import Model, load, named_config
from clearhead.checkpoints.families import family_of
from clearhead.config import TokenInput
from clearhead.errors import UserError
from clearhead.model import Transformer
from tests.parity.cases import REPRESENTATIVES
from tests.parity.harness import Case

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
MOST_BYTES, MOST_CHARACTERS = 50 << 20, 800

FIRST: list[Case] = list({case.family: case for case in reversed(REPRESENTATIVES)}.values())[::-1]
"""One class for each family: its first."""
LABELLED: list[Case] = [case for case in REPRESENTATIVES if case.architecture.endswith("ForSequenceClassification")]


def make(case: Case, folder: Path) -> Path:
    """A folder with this configuration, every mapped field written out, and random weights."""
    document = {"model_type": case.family, "architectures": [case.architecture], **case.config}
    config, _ = family_of(document, where="case").read(document, where="case")
    Model(Transformer(config), family=case.family).save(folder)
    (folder / "MANIFEST.json").unlink()
    return folder


def document_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / CONFIG).read_text())


def put(folder: Path, document: Mapping[str, object] | str) -> Path:
    """config.json with this content."""
    text = document if isinstance(document, str) else json.dumps(document)
    (folder / CONFIG).write_text(text, encoding="utf-8", errors="surrogatepass")
    return folder


# --- outcomes ------------------------------------------------------------------------------------------------------


def told(error: UserError, folder: Path) -> str:
    """The message without the folder: one short line that names a file there and says what to do."""
    message = str(error)
    assert message.isprintable(), message
    assert len(message) <= MOST_CHARACTERS, message
    assert message.startswith(str(folder)), message
    assert "; " in message, message
    assert type(error).exit_code == 2
    return message.removeprefix(str(folder)).removeprefix("/")


def refusal(folder: Path) -> str:
    """What `load` says of a folder that it refuses."""
    with watched():
        try:
            load(folder)
        except UserError as error:
            return told(error, folder)
    raise AssertionError(f"{folder} was opened")


def outcome(folder: Path) -> str | None:
    """What `load` says; None if there is a model, which then works."""
    try:
        model = load(folder)
    except UserError as error:
        return told(error, folder)
    assert runs(model)
    return None


def config_outcome(folder: Path) -> str | None:
    """What is said of the config alone; None if it is that of some network."""
    try:
        named_config(str(folder))
    except UserError as error:
        return told(error, folder)
    return None


def runs(model: Model) -> bool:
    """Whether the network computes."""
    inputs = []
    for stack in (model.config.encoder, model.config.decoder):
        if stack is not None:
            reads = stack.input
            n = min(3, stack.max_length or 3)
            is_text = isinstance(reads, TokenInput)
            shape = (1, n) if is_text else (1, *reads.shape)
            inputs.append(torch.zeros(shape, dtype=torch.long if is_text else model_dtype(model)))
    with torch.no_grad():
        return isinstance(model.network(*inputs), Tensor)


def model_dtype(model: Model) -> torch.dtype:
    return next(model.network.parameters()).dtype


# --- what may not happen -------------------------------------------------------------------------------------------

FORBIDDEN = (
    *("pickle.find_class", "marshal.loads", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn"),
    *("os.spawn", "os.startfile", "subprocess.Popen", "pty.spawn", "ftplib.connect", "http.client.connect"),
    *("socket.connect", "socket.getaddrinfo", "socket.bind", "urllib.Request", "ctypes.dlopen", "shutil.rmtree"),
)
TRUSTED = tuple(
    str(Path(path).resolve()) for path in (sys.prefix, sys.base_prefix, Path(clearhead.__file__).parents[1])
)
_seen: list[str] | None = None
_allowed: tuple[str, ...] = ()


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if _seen is None or event in _allowed:
        return
    if event in FORBIDDEN and not (event == "marshal.loads" and _imports()):
        _seen.append(f"{event} {arguments!r}"[:300])
    elif event == "exec":
        name = getattr(arguments[0], "co_filename", "?")
        if not _is_trusted(name):
            _seen.append(f"exec {name}")
    elif event == "open" and _writes(arguments[2]) and not _is_idle(str(arguments[0])):
        _seen.append(f"write {arguments[0]}")


def _is_idle(path: str) -> bool:
    """What an import writes: a compiled module, or to nowhere, as dill does."""
    return path == os.devnull or "__pycache__" in path


def _writes(flags: object) -> bool:
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR))


def _is_trusted(name: str) -> bool:
    """Of this package or an installed one; what they compute by themselves has no file."""
    return name.startswith(("<frozen", "<string>", "<attrs")) or str(Path(name).resolve()).startswith(TRUSTED)


def _imports() -> bool:
    """Whether Python itself reads the compiled file of a module."""
    frame = sys._getframe(2)
    while frame is not None:
        if "importlib" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


sys.addaudithook(_hook)


@contextmanager
def watched(*, allowed: tuple[str, ...] = ()) -> Iterator[None]:
    """No foreign code, process or connection, no file written, and no 50 MB more than before."""
    global _seen, _allowed
    _seen, _allowed, before = [], allowed, reset_peak()
    try:
        yield
    finally:
        seen, _seen = _seen, None
    assert not seen, seen
    grown = peak() - before
    assert grown < MOST_BYTES, f"{grown:,} bytes"


def reset_peak() -> int:
    """The peak of this process's memory, forgotten where the system can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> int:
    """Bytes."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) << 10
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
