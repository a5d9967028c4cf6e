"""Files in a zip archive. Their paths go on after that of the archive: `mails.zip/train.csv`. No torch."""

import re
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from clearhead.errors import UserError
from clearhead.recipe.places import Place, Url

JUNK = {"__macosx", "thumbs.db", "ehthumbs.db", "desktop.ini"}
"""What systems put into folders, in lower case. Hidden files are left out as well."""


def is_archive(path: Path) -> bool:
    """Returns True for a zip file, by its name."""
    return path.name.lower().endswith(".zip") and path.is_file()


def plain_name(name: str) -> str:
    """The name of a file in lower case, without the suffix of a packed one."""
    return re.sub(r"\.(gz|bz2|xz|zst)$", "", name.lower())


def archive_of(path: Place) -> Path | None:
    """The archive into which a path leads; None for any other path."""
    return None if isinstance(path, Url) else next((parent for parent in path.parents if is_archive(parent)), None)


def is_junk(name: str) -> bool:
    """Returns True if a part of a path is hidden, or comes from a system and not from a person."""
    return any(part.startswith(".") or part.lower() in JUNK for part in PurePosixPath(name).parts)


def entries(archive: Path, stream: Any) -> Iterator[tuple[str, int, Callable[[], Any]]]:
    """The name of each file in an archive, its packed size, and what opens it. `stream` holds the archive.

    Raises UserError if a file needs a password.
    """
    with zipfile.ZipFile(stream) as file:
        for one in file.infolist():
            if one.flag_bits & 1:
                raise UserError(f"{archive}: expected an archive without a password, got one; unpack it first")
            if not one.is_dir():
                yield one.filename.lstrip("/"), one.compress_size, partial(file.open, one)
