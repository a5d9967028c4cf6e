"""Checkpoints that survive a kill, a power cut, a full disk and a flipped bit: safetensors and JSON only.

`RUN/step-00000100/` appears whole or not at all: it is written beside its place under a temporary name, synced,
described by a MANIFEST.json of sizes and SHA-256 sums, and renamed. A folder that does not match its manifest is never
loaded.
"""

import json
import logging
import os
import secrets
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import safetensors
from safetensors.torch import load_file, save_file
from torch import Tensor

from clearhead.brief import brief
from clearhead.errors import UserError, reason, sizes
from clearhead.json_text import PLAIN_NAME, JsonObject, parse
from clearhead.recipe.places import BEST
from clearhead.storage.disk import check_space, has_space, make_folder, remedy, size_of, temporary_name, written
from clearhead.storage.manifest import (
    FILE_NAME,
    MANIFEST,
    OBJECT,
    OLDER,
    STEP,
    CorruptCheckpoint,
    Entry,
    render,
    seal,
    sync,
    unreadable,
    verify,
    write,
)

_log = logging.getLogger("clearhead")

INDEX = ".index.json"
"""Ends the name of the index that says which file holds each tensor of `model.safetensors` and the like."""


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint, by file name."""

    __repr__ = brief

    tensors: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    """Such as `model.safetensors` (see `model_tensors`) and `optimizer.safetensors`."""
    json: Mapping[str, JsonObject] = field(default_factory=dict)
    """Such as `config.json`; NaN and infinity are refused."""
    raw: Mapping[str, bytes] = field(default_factory=dict)
    """Files kept byte for byte, such as `tokenizer.json`."""

    @property
    def texts(self) -> dict[str, bytes]:
        """The JSON files as bytes."""
        return {name: json.dumps(value, allow_nan=False, indent=2).encode() for name, value in self.json.items()}

    @property
    def n_bytes(self) -> int:
        """About their size on the disk, with all parts of divided tensors."""
        tensors = sum(size_of(t) for named in self.tensors.values() for t in named.values())
        return tensors + sum(map(len, (*self.texts.values(), *self.raw.values())))


# --- write --------------------------------------------------------------------------------------------------


def save(run_folder: Path, step: int, files: Checkpoint) -> Path:
    """Write `run_folder/step-%08d` and return it, as `write_folder` does."""
    return write_folder(place_of(run_folder, step), files, step=step)


def place_of(run_folder: Path, step: int) -> Path:
    """The folder of the checkpoint of a step."""
    return run_folder / f"step-{step:08d}"


def write_folder(place: Path, files: Checkpoint, *, step: int = 0) -> Path:
    """Write a new folder of these files and return it. It survives a power cut once this returns.

    The manifest describes every file. The folder appears whole or not at all, and nothing is overwritten. Tensors that
    share memory are each written whole. Raises UserError if the folder exists, if less than 1.2 times the size is free,
    and if the disk is full, read-only, failing or protected. Older checkpoints then stay as they were.
    """
    temporary = place.parent / temporary_name(place)
    try:
        open_folder(temporary, place, files.n_bytes)
        entries = fill_folder(temporary, place, files)
        close_folder(temporary, place, entries, step=step)
    except BaseException:
        discard(temporary)
        raise
    return place


def open_folder(temporary: Path, place: Path, n_bytes: int) -> None:
    """The first step of `write_folder`: a new folder beside `place` with room for `n_bytes`."""
    with written(place):
        make_folder(place.parent)
        if place.exists():
            raise UserError(f"{place}: expected nothing there, got a file or folder; try another, or resume from it")
        check_space(place.parent, n_bytes)
        temporary.mkdir()


def fill_folder(temporary: Path, place: Path, files: Checkpoint) -> dict[str, Entry]:
    """Write files into an open folder and through to the disk. Several processes may each write theirs."""
    names = [*files.tensors, *files.json, *files.raw]
    if len(set(names)) < len(names) or MANIFEST in names or not all(FILE_NAME.fullmatch(n) for n in names):
        raise ValueError(f"file names {names} must be plain and different")
    entries: dict[str, Entry] = {}
    with written(place):
        for name in names:
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
        for name, tensors in files.tensors.items():
            save_file(_apart(tensors), temporary / name, metadata={"format": "pt"})
            # The library makes files for their owner alone. Make them as readable as their folder.
            (temporary / name).chmod(temporary.stat().st_mode & 0o666)
            entries[name] = seal(temporary / name, "tensors")
        for kind, contents in (("json", files.texts), ("raw", files.raw)):
            for name, content in contents.items():
                write(temporary / name, content)
                entries[name] = seal(temporary / name, kind)
    return entries


def close_folder(temporary: Path, place: Path, entries: Mapping[str, Entry], *, step: int) -> None:
    """Write the manifest of these files, and give the folder its final name."""
    with written(place):
        write(temporary / MANIFEST, render(step, entries))
        sync(temporary / MANIFEST)
        sync(temporary)
        os.rename(temporary, place)  # noqa: PTH104 - one system call, one name to fail in tests
        sync(place.parent)


def clean(run_folder: Path) -> None:
    """Remove what killed writers left. Only for the holder of the lock of `run_folder`."""
    for path in run_folder.glob(".tmp-step-*"):
        discard(path)


def prune(run_folder: Path, *, keep_last: int, keep: Collection[int] = ()) -> list[Path]:
    """Remove all checkpoints except the last `keep_last` and those of the steps in `keep`.

    At least one checkpoint that verifies is left, even if these rules would not keep it. Returns the removed ones.
    """
    if keep_last < 1:
        raise ValueError(f"keep_last={keep_last} must be at least 1")
    found = _checkpoints(run_folder)
    spared = {*found[:keep_last], *(p for p in found if step_of(p) in keep)}
    anchor = next((p for p in sorted(found, key=lambda p: p not in spared) if _valid(p)), None)
    if anchor is None:
        return []
    removed: list[Path] = []
    for path in found:
        if path in spared or path == anchor:
            continue
        # Rename first: a kill halfway then leaves rubbish, not a broken checkpoint.
        if (doomed := _renamed(path, ".tmp", "pruned")) is not None:
            discard(doomed)
            removed.append(path)
    return removed


# --- read ---------------------------------------------------------------------------------------------------


def latest(run_folder: Path, *, set_aside: bool = False) -> Path | None:
    """The newest checkpoint that verifies, or None. A warning names newer bad ones.

    `set_aside` renames bad ones to `.bad-…`, so that the run can write them again. Only the run's writer may do this.
    Raises UserError for a checkpoint of a newer format, which is not bad.
    """
    for path in _checkpoints(run_folder):
        try:
            verify(path)
        except CorruptCheckpoint as error:
            if set_aside:
                _log.warning("set aside as .bad-%s: %s", path.name, error)
                _renamed(path, ".bad", "set aside")
            elif path.exists():  # Otherwise the run's writer has just removed it.
                _log.warning("passed over: %s", error)
        else:
            return path
    return None


def best(run_folder: Path) -> Path | None:
    """The checkpoint that best.json names, if it exists. The file is only a hint, and may outlive the checkpoint."""
    try:
        named = parse((run_folder / BEST).read_bytes(), BEST)
    except (OSError, ValueError):
        return None
    name = named.get("checkpoint") if isinstance(named, dict) else None
    if not isinstance(name, str) or PLAIN_NAME.fullmatch(name) is None:
        return None
    return run_folder / name if (run_folder / name).is_dir() else None


def load(folder: Path) -> Checkpoint:
    """Verify and read what `save` wrote, with tensors on the CPU."""
    manifest = verify(folder)
    tensors: dict[str, dict[str, Tensor]] = {}
    documents: dict[str, JsonObject] = {}
    raw: dict[str, bytes] = {}
    for name, entry in manifest.files.items():
        path = folder / name
        try:
            match entry.kind:
                case "tensors":
                    tensors[name] = load_file(path)
                case "json":
                    documents[name] = OBJECT.validate_python(json.loads(path.read_bytes()))
                case "raw":
                    raw[name] = path.read_bytes()
        except (safetensors.SafetensorError, ValueError, RecursionError) as error:
            raise CorruptCheckpoint(f"{path}: expected {entry.kind}, got {reason(error)}; {OLDER}") from error
        except OSError as error:
            raise unreadable(path, error) from error
    _join(tensors, documents, folder)
    return Checkpoint(tensors=tensors, json=documents, raw=raw)


def _join(tensors: dict[str, dict[str, Tensor]], documents: dict[str, JsonObject], folder: Path) -> None:
    """Join the files that several processes wrote, a share each."""
    for index in [name for name in documents if name.endswith(f".safetensors{INDEX}")]:
        where = documents.pop(index).get("weight_map")
        if not isinstance(where, dict) or any(name not in tensors.get(str(file), {}) for name, file in where.items()):
            raise CorruptCheckpoint(f"{folder / index}: expected the file of each tensor, got another; {OLDER}")
        tensors[index.removesuffix(INDEX)] = {name: tensors[str(file)][name] for name, file in where.items()}
        for file in set(map(str, where.values())):
            del tensors[file]


def steps_in(run_folder: Path) -> list[int]:
    """The steps of the checkpoints in a run's folder, in order."""
    return sorted(step_of(path) for path in run_folder.glob("step-*") if STEP.fullmatch(path.name))


def step_of(folder: Path) -> int:
    """The step in the name of a checkpoint's folder."""
    match = STEP.fullmatch(folder.name)
    if match is None:
        raise UserError(
            f"{folder}: expected a checkpoint named step-00000100, got {folder.name!r}; try a folder inside"
        )
    return int(match[1])


# --- parts --------------------------------------------------------------------------------------------------


def _checkpoints(run_folder: Path) -> list[Path]:
    """Folders named as checkpoints, newest first."""
    try:
        return sorted((p for p in run_folder.iterdir() if STEP.fullmatch(p.name)), key=step_of, reverse=True)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"{run_folder}: expected checkpoints, got {reason(error)}; {remedy(error)}") from error


def _valid(folder: Path) -> bool:
    try:
        verify(folder)
    except UserError:
        return False
    return True


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as safetensors takes them: on the CPU, contiguous, without shared memory."""
    seen: set[int] = set()
    apart: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        storage = tensor.untyped_storage()
        if storage.data_ptr() in seen or storage.nbytes() != tensor.numel() * tensor.element_size():
            tensor = tensor.clone()
        seen.add(storage.data_ptr())
        apart[name] = tensor
    return apart


def _renamed(path: Path, prefix: str, what: str) -> Path | None:
    """The new path of a checkpoint that loses its name; None, after a warning, if it cannot be renamed."""
    new = path.with_name(f"{prefix}-{path.name}-{secrets.token_hex(4)}")
    try:
        os.rename(path, new)  # noqa: PTH104
    except OSError as error:
        _log.warning("%s: not %s: %s", path, what, reason(error))
        return None
    return new


def discard(folder: Path) -> None:
    """Remove a folder that was begun and is not wanted."""
    shutil.rmtree(folder, ignore_errors=True)


def shortage(run_folder: Path, newest: Path, most: int) -> str:
    """A line if the disk has no room for `most` checkpoints of the size of `newest`, those that exist included."""
    size = sum(path.stat().st_size for path in newest.rglob("*") if path.is_file())
    n_more, free = most - len(steps_in(run_folder)), shutil.disk_usage(run_folder).free
    if n_more * size <= free:
        return ""
    wanted, left = sizes(n_more * size, free)
    return (
        f"{run_folder}: up to {n_more} more checkpoints need {wanted}, and {left} is free; when no room is left, the"
        " oldest but the best are removed; try a lower --training.keep_spaced, or free some space"
    )


def make_room(run_folder: Path, n_bytes: int, *, keep: Collection[int] = ()) -> list[Path]:
    """Remove checkpoints until there is room for another of `n_bytes`, and return them.

    Removes the oldest first; never the newest one that verifies, the one that `best.json` names or those of the steps
    in `keep`.
    """
    named, removed = best(run_folder), list[Path]()
    spared = {*keep, *([step_of(named)] if named is not None and STEP.fullmatch(named.name) else [])}
    for n in range(len(steps_in(run_folder)) - 1, 0, -1):
        if has_space(run_folder, n_bytes):
            break
        removed += prune(run_folder, keep_last=n, keep=spared)
    return removed
