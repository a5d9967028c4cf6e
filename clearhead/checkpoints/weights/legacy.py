"""Converts `pytorch_model.bin` to safetensors, once, in a separate process.

Such a file is a pickle, which names the functions that build its content. torch.load(weights_only=True) allows only
those that build tensors. The separate process contains the damage of a file that breaks even that.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import safe_open

from clearhead.checkpoints.weights.documents import AGAIN, INDEX, Index, is_there, shown, size_of
from clearhead.errors import OutOfMemory, UserError, is_memory, reason
from clearhead.recipe.places import cache_folder

if TYPE_CHECKING:
    from torch import Tensor

BIN = "pytorch_model.bin"
BIN_INDEX = "pytorch_model.bin.index.json"

SAFE = "try a checkpoint in safetensors"
CONVERTED = "converted"
FORMAT = 1
"""The version of the files in the cache. Other versions are ignored."""

_NO_MEMORY = f"expected enough memory to convert it, got too little; {SAFE}, or a smaller model"

# Seconds to start, and bytes a second.
_START, _BYTES_PER_SECOND = 120, 10_000_000


def converted(folder: Path) -> Path | None:
    """A folder with the same tensors as safetensors, converted unless it is in the cache; None without any `.bin`."""
    if is_there(folder / BIN):
        index, sources = None, [folder / BIN]
    elif is_there(folder / BIN_INDEX):
        index = Index.read(folder / BIN_INDEX, suffix=".bin")
        sources = [folder / file for file in index.shards]
    else:
        return None
    size = sum(map(size_of, sources))
    target = cache_folder() / CONVERTED / _key(sources)
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=target.parent, ignore_cleanup_errors=True) as temporary:
            new = Path(temporary) / "new"
            new.mkdir()
            _in_another_process(sources, new, timeout=_START + size / _BYTES_PER_SECOND)
            _write_index(sources, new, index)
            _publish(new, target)
    except OSError as error:
        raise UserError(f"{sources[0]}: {_unwritten(error)}") from error
    return target


def main(arguments: Sequence[str]) -> int:
    """`SRC… DST`: converts each source to safetensors in DST. Prints an error, and then exits with its code."""
    *sources, target = map(Path, arguments)
    try:
        for source in sources:
            _convert(source, target / _name(source))
    except UserError as error:
        print(error)
        return error.exit_code
    return 0


# --- the process that asks ---------------------------------------------------------------------------------------


def _key(sources: Sequence[Path]) -> str:
    """The cache key of these sources. A changed file gets another one."""
    about = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in sources]
    return hashlib.sha256(json.dumps([FORMAT, about]).encode()).hexdigest()[:32]


def _name(source: Path) -> str:
    return f"{source.stem}.safetensors"


def _in_another_process(sources: Sequence[Path], target: Path, *, timeout: float) -> None:
    # -P and this package's own path: nothing from the current folder is imported.
    package = str(Path(__file__).resolve().parents[3])
    environment = {**os.environ, "PYTHONPATH": package, "PYTHONIOENCODING": "utf-8:backslashreplace"}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", __spec__.name, *map(str, sources), str(target)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"{sources[0]}: expected to read it in {timeout:.0f} s, got no result; {SAFE}") from None
    if done.returncode in (UserError.exit_code, OutOfMemory.exit_code) and done.stdout:
        kind = OutOfMemory if done.returncode == OutOfMemory.exit_code else UserError
        raise kind(done.stdout.decode().strip())
    if done.returncode == -9:  # SIGKILL, which the kernel sends if memory runs out.
        raise OutOfMemory(f"{sources[0]}: {_NO_MEMORY}")
    if done.returncode:
        how = f"exit code {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
        raise UserError(f"{sources[0]}: expected to read it, but its reader ended with {how}; {SAFE}")


def _write_index(sources: Sequence[Path], folder: Path, index: Index | None) -> None:
    """Checks the converted tensors against the index of the sources, and writes their index."""
    places: dict[str, str] = {}
    for source in sources:
        with safe_open(folder / _name(source), framework="numpy") as file:
            names = list(file.keys())
        if index is not None:
            index.check(source.name, names)
        places |= dict.fromkeys(names, _name(source))
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}), encoding="utf-8")


def _publish(new: Path, target: Path) -> None:
    """Renames the new folder in one step. If another process was first, its folder is used."""
    try:
        new.rename(target)
    except OSError:
        if not target.is_dir():
            raise


def _unwritten(error: Exception) -> str:
    remedy = "try another folder as XDG_CACHE_HOME, or safetensors"
    return f"expected to write it to {cache_folder() / CONVERTED}, got {reason(error)}; {remedy}"


# --- the process that is asked -----------------------------------------------------------------------------------


def _convert(source: Path, target: Path) -> None:
    from safetensors.torch import save_file

    tensors = _separate(_load(source), source)
    try:
        save_file(tensors, target, metadata={"format": "pt"})
        with target.open("rb+") as file:
            os.fsync(file.fileno())
    except Exception as error:  # the library's own error for a full disk, others for numbers that it cannot write
        if is_memory(error):
            raise OutOfMemory(f"{source}: {_NO_MEMORY}") from None
        raise UserError(f"{source}: {_unwritten(error)}") from None


def _load(source: Path) -> object:
    import torch

    try:
        archive = zipfile.is_zipfile(source)
        if archive and any(entry.compress_type != zipfile.ZIP_STORED for entry in zipfile.ZipFile(source).infolist()):
            raise UserError(f"{source}: expected an archive as torch writes it, got a compressed one; {SAFE}")
        return torch.load(source, map_location="cpu", weights_only=True, mmap=archive)
    except UserError:
        raise
    except Exception as error:  # a broken pickle, or one that does more than hold tensors, may raise anything
        if is_memory(error):
            raise OutOfMemory(f"{source}: {_NO_MEMORY}") from None
        if named := re.search(r"GLOBAL ([\w.]+)", str(error)):
            raise UserError(f"{source}: expected tensors only, got a call of {named[1]}; {SAFE}") from None
        what = shown(str(error).split(". ")[0]) or type(error).__name__
        raise UserError(f"{source}: expected a file that torch wrote, got {what}; {AGAIN}") from None


def _separate(values: object, source: Path) -> "dict[str, Tensor]":
    """The tensors without shared memory: each gets its own numbers."""
    import torch
    from torch import Tensor

    if not isinstance(values, dict):
        raise UserError(f"{source}: expected a table of tensors, got {type(values).__name__}; {SAFE}")
    separate: dict[str, Tensor] = {}
    storages: set[int] = set()
    for name, value in values.items():
        where = f"{source}:{shown(str(name))}"
        if not isinstance(name, str):
            raise UserError(f"{where}: expected the name of a tensor, got {type(name).__name__}; {SAFE}")
        if not isinstance(value, Tensor):
            raise UserError(f"{where}: expected a tensor, got {type(value).__name__}; {SAFE}")
        if value.layout != torch.strided or value.is_quantized or value.is_meta:
            raise UserError(f"{where}: expected a tensor of plain numbers, got another kind; {SAFE}")
        storage = value.untyped_storage().data_ptr()
        value = value.detach().contiguous()
        separate[name] = value.clone() if storage in storages else value
        storages.add(storage)
    return separate


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
