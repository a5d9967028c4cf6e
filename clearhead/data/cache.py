"""A cache of what is made from data, for later runs and for the other processes of this one. Imports no torch.

An entry is a folder that appears whole or not at all. One process makes it while the others wait.
"""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue, ValidationError

from clearhead.config import Config
from clearhead.data.sequences import Described, Sequences, Shelf, open_sequences
from clearhead.errors import UserError

FORMAT = 2
CONTENT = "content.json"
Facts = dict[str, JsonValue]
Make = Callable[[Shelf], Facts]
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


class Content(Config):
    """An entry's description of itself."""

    format: int
    made_of: dict[str, JsonValue]
    """Everything that determines the content, such as the files' sizes and times."""
    facts: dict[str, JsonValue]
    sequences: dict[str, Described]


@dataclass(frozen=True)
class CacheEntry:
    """Facts and sequences made together."""

    facts: Facts
    sequences: dict[str, Sequences]


@dataclass(frozen=True)
class DiskCache:
    """A folder of entries. Without a folder, entries are made in memory and not kept."""

    folder: Path | None

    def get(self, name: str, make: Make, *, of: Mapping[str, JsonValue], state: JsonValue) -> CacheEntry:
        """Returns the entry for `of`, and calls `make` only if it is missing or out of date.

        `of` identifies the entry and `state` describes what it was made from. An entry is replaced if its `state`
        differs, or if one of its files is missing, truncated or unreadable. Raises UserError if the entry cannot be
        written, and leaves no partial files.
        """
        if self.folder is None:
            shelf = Shelf()
            return CacheEntry(make(shelf), shelf.in_memory())
        made_of: Facts = {**of, "state": state}
        digest = hashlib.sha256(json.dumps(dict(of), sort_keys=True).encode()).hexdigest()
        place = self.folder / f"{name}-{digest[:24]}"
        with _told(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            with _locked(self.folder / f".{place.name}.lock"):
                found = _open(place, made_of)
                if found is None:
                    _write(place, made_of, make)
                    found = _open(place, made_of)
        if found is None:
            raise UserError(f"{place}: expected the data that were just written, got others; try another data.cache")
        return found


def _open(place: Path, made_of: Facts) -> CacheEntry | None:
    """The entry if it exists, was made from `made_of` and its files are intact; otherwise None."""
    try:
        content = Content.model_validate_json((place / CONTENT).read_bytes())
        if content.format != FORMAT or content.made_of != made_of:
            return None
        sequences = {name: open_sequences(place, name, described) for name, described in content.sequences.items()}
    except (OSError, ValidationError, TypeError):
        return None
    whole = {name: found for name, found in sequences.items() if found is not None}
    return CacheEntry(content.facts, whole) if len(whole) == len(sequences) else None


def _write(place: Path, made_of: Facts, make: Make) -> None:
    """Writes the entry under a temporary name and renames it once all of it is on disk."""
    for left in place.parent.glob(f".tmp-{place.name}-*"):  # Left by a killed process: we hold the lock.
        shutil.rmtree(left, ignore_errors=True)
    temporary = place.with_name(f".tmp-{place.name}-{os.getpid()}")
    temporary.mkdir()
    shelf = Shelf(temporary)
    try:
        facts = make(shelf)
        content = Content(format=FORMAT, made_of=made_of, facts=facts, sequences=shelf.on_disk())
        with (temporary / CONTENT).open("w", encoding="utf-8") as file:
            file.write(content.model_dump_json())
            file.flush()
            os.fsync(file.fileno())
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
        temporary.rename(place)
    finally:
        shelf.close()
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on this path where the file system has locks. A killed process frees its lock."""
    try:
        import fcntl
    except ImportError:  # Without locks each process makes its own entry, and the last one stays.
        yield
        return
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
        yield


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    """Turns an OSError from writing into a UserError. Reading the data raises its own."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{folder}: expected to write encoded data, got {error.strerror or error};"
            " try --data.cache with a folder that has room, or --data.storage memory"
        ) from None
