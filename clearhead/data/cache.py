"""What was made from data once, kept for the next run and for the other processes of this one. Imports no torch.

An entry is a folder that is there whole or not at all. One process makes it, the others wait for it.
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
    """What an entry says of itself."""

    format: int
    made_of: dict[str, JsonValue]
    """All that decides what is in it, such as the files' sizes and times."""
    facts: dict[str, JsonValue]
    sequences: dict[str, Described]


@dataclass(frozen=True)
class Entry:
    """Facts and sequences that were made together."""

    facts: Facts
    sequences: dict[str, Sequences]


@dataclass(frozen=True)
class Cache:
    """A folder of entries; None: memory, which forgets."""

    folder: Path | None

    def get(self, name: str, make: Make, *, of: Mapping[str, JsonValue], state: JsonValue) -> Entry:
        """What `make` gives, made once for all that ask for the same.

        `of` says which entry it is and `state` what it was made from: where that is another now, or where a file of
        the entry is missing, cut or not ours, it is made anew in the old one's place. Raises UserError where it cannot
        be written, and leaves nothing behind then.
        """
        if self.folder is None:
            shelf = Shelf()
            return Entry(make(shelf), shelf.in_memory())
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


def default_folder() -> Path:
    """Where this user's caches lie: $XDG_CACHE_HOME, else ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clearhead"


def _open(place: Path, made_of: Facts) -> Entry | None:
    """The entry, if it is there, is of these and its files are as they were written."""
    try:
        content = Content.model_validate_json((place / CONTENT).read_bytes())
        if content.format != FORMAT or content.made_of != made_of:
            return None
        sequences = {name: open_sequences(place, name, described) for name, described in content.sequences.items()}
    except (OSError, ValidationError, TypeError):
        return None
    whole = {name: found for name, found in sequences.items() if found is not None}
    return Entry(content.facts, whole) if len(whole) == len(sequences) else None


def _write(place: Path, made_of: Facts, make: Make) -> None:
    """Make the entry under another name, and give it its own when all of it is on the disk."""
    for left in place.parent.glob(f".tmp-{place.name}-*"):  # Of a process that was killed: we hold the lock.
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
    """Alone among all processes that lock this path, on a file system that has locks; freed even by a kill."""
    try:
        import fcntl
    except ImportError:  # Where there are no locks each makes its own, and the last one stays.
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
    """What the disk refuses becomes UserError; reading the data has its own."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{folder}: expected to write encoded data, got {error.strerror or error};"
            " try --data.cache with a folder that has room, or --data.storage memory"
        ) from None
