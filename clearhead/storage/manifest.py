"""The manifest of a checkpoint: the sizes and checksums of its files, and their verification."""

import errno
import hashlib
import json
import os
import platform
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import safetensors
import torch
from pydantic import NonNegativeInt, TypeAdapter, ValidationError

from clearhead.config import Config
from clearhead.errors import UserError, reason
from clearhead.json_text import PLAIN_NAME, JsonObject

FORMAT = 1
MANIFEST = "MANIFEST.json"
OLDER = "try an older checkpoint"
OBJECT: TypeAdapter[JsonObject] = TypeAdapter(JsonObject)
STEP = re.compile(r"step-(\d{8,})")
FILE_NAME = re.compile(rf"{PLAIN_NAME.pattern}(?:/{PLAIN_NAME.pattern})*")
"""The name of a file in a checkpoint, or in a folder within it."""

_MAX_MANIFEST = 1 << 20


class Entry(Config):
    """One file of a checkpoint as it was written."""

    kind: Literal["tensors", "json", "raw"]
    size: NonNegativeInt
    sha256: str


class Manifest(Config):
    """The content of MANIFEST.json. `checksum` covers its own text."""

    format: Literal[1]
    step: NonNegativeInt
    files: dict[str, Entry]
    environment: dict[str, str]
    """Versions, machine and threads. On the same ones a resumed run is equal to the bit."""
    checksum: str


class CorruptCheckpoint(UserError):
    """A checkpoint that has changed since it was written. The message names the file."""


def verify(folder: Path, *, others: bool = False, remedy: str = OLDER) -> Manifest:
    """Reads a manifest and checks that every file is as it was written.

    Raises CorruptCheckpoint, which names the file, if one is missing or has changed, or, unless `others` is true, if
    there is an extra one. Raises UserError for a format newer than this version reads. `remedy` tells the user what to
    do about a file that has changed.
    """
    manifest = _manifest(folder, remedy)
    named = STEP.fullmatch(folder.name)
    if named and int(named[1]) != manifest.step:
        raise CorruptCheckpoint(f"{folder / MANIFEST}:step: expected {int(named[1])}, got {manifest.step}; {OLDER}")
    try:
        present = {entry.name for entry in os.scandir(folder)} - {MANIFEST}
    except OSError as error:
        raise unreadable(folder, error) from error
    for name in sorted(set() if others else present - {Path(name).parts[0] for name in manifest.files}):
        raise CorruptCheckpoint(f"{folder / name}: expected no such file in a checkpoint, got one; try removing it")
    for name, entry in manifest.files.items():
        size, digest = _measure(folder / name, remedy=remedy)
        if size != entry.size:
            raise CorruptCheckpoint(f"{folder / name}: expected {entry.size} bytes, got {size}; {remedy}")
        if digest != entry.sha256:
            raise CorruptCheckpoint(
                f"{folder / name}: expected SHA-256 {entry.sha256[:12]}…, got {digest[:12]}…; {remedy}"
            )
    return manifest


def write(path: Path, content: bytes) -> None:
    """Write a new file. Raises FileExistsError if it exists."""
    with path.open("xb") as file:
        file.write(content)


def seal(path: Path, kind: str) -> Entry:
    """Write a file through to the disk; returns its entry."""
    sync(path)
    size, digest = _measure(path)
    return Entry.model_validate({"kind": kind, "size": size, "sha256": digest})


def sync(path: Path) -> None:
    """Write a file or folder through to the disk."""
    if os.name == "nt" and path.is_dir():
        return  # Windows has no such call for folders.
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def render(step: int, entries: Mapping[str, Entry]) -> bytes:
    """The text of MANIFEST.json."""
    environment = {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "safetensors": safetensors.__version__,
        "machine": platform.machine(),
        "threads": str(torch.get_num_threads()),
    }
    files = {name: entry.model_dump() for name, entry in entries.items()}
    document = OBJECT.validate_python({"format": FORMAT, "step": step, "files": files, "environment": environment})
    return _text(document | {"checksum": _checksum(document)})


def _text(document: JsonObject) -> bytes:
    return json.dumps(document, indent=2).encode() + b"\n"


def _checksum(document: JsonObject) -> str:
    """SHA-256 of the manifest's text without its checksum, so that a flipped bit in the manifest shows too."""
    return hashlib.sha256(_text({k: v for k, v in document.items() if k != "checksum"})).hexdigest()


def _manifest(folder: Path, remedy: str) -> Manifest:
    path = folder / MANIFEST
    damaged = CorruptCheckpoint(f"{path}: expected a manifest as it was written, got another text; {remedy}")
    size, _ = _measure(path, limit=_MAX_MANIFEST)
    if size > _MAX_MANIFEST:
        raise damaged
    try:
        text = path.read_bytes()
        document = OBJECT.validate_python(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise damaged from error
    except OSError as error:
        raise unreadable(path, error) from error
    # Checked for every format, which tells a newer manifest from a damaged one.
    if document.get("checksum") != _checksum(document) or _text(document) != text:
        raise damaged
    version = document.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise UserError(f"{path}:format: expected at most {FORMAT}, got {version}; try a newer version of clearhead")
    try:
        manifest = Manifest.model_validate(document)
    except ValidationError as error:
        raise damaged from error
    if not all(FILE_NAME.fullmatch(name) for name in manifest.files):
        raise damaged
    return manifest


def _measure(path: Path, limit: int | None = None, *, remedy: str = OLDER) -> tuple[int, str]:
    """Size and SHA-256 of a regular file; of one larger than `limit` the size alone."""
    try:
        about = path.lstat()
        if not stat.S_ISREG(about.st_mode):
            raise CorruptCheckpoint(f"{path}: expected a regular file, got something else; {remedy}")
        if limit is not None and about.st_size > limit:
            return about.st_size, ""
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
            return file.tell(), digest.hexdigest()
    except OSError as error:
        raise unreadable(path, error, remedy) from error


def unreadable(path: Path, error: OSError, remedy: str = OLDER) -> UserError:
    """A missing or failing file is corruption. A file without read permission is not."""
    kind = UserError if error.errno in {errno.EACCES, errno.EPERM, errno.EMFILE} else CorruptCheckpoint
    return kind(f"{path}: expected to read it, got {reason(error)}; {remedy}")
