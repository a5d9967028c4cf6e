"""Where a file is: a path, or an address that fsspec opens; the user's cache; the names of a run's files. No torch."""

import io
import os
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeAlias, cast

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from clearhead.errors import UserError

PATTERN = r"^[A-Za-z][A-Za-z0-9+.-]+://"


class Url(str):
    """The address of a file that fsspec opens, such as s3://bucket/pairs.csv, memory://a.txt or https://host/a.csv."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The last part of the address."""
        return PurePosixPath(self).name

    def matching(self) -> "list[Url]":
        """The files that match, in order of their names; the address itself if it is no pattern or nothing matches.

        Only * is a pattern, because ? begins a query.
        """
        if "*" not in self:
            return [self]
        files, path = self._located()
        return [Url(files.unstrip_protocol(name)) for name in sorted(files.glob(path))] or [self]

    def state(self) -> tuple[int, int]:
        """The size of the file in bytes, and a number that changes with its content as far as its server says.

        0, 0 for a file that is not there, which reading it reports.
        """
        files, path = self._located()
        try:
            return int(files.info(path).get("size") or 0), int(files.ukey(path)[:12], 16)
        except OSError:
            return 0, 0

    def open(self, mode: Literal["rb"]) -> io.BufferedReader:
        """The file, to read its bytes."""
        files, path = self._located()
        return cast(io.BufferedReader, io.BufferedReader(files.open(path, mode)))

    def _located(self) -> tuple[Any, str]:
        """The file system and the path in it. Raises UserError for an unknown kind, or without its package."""
        import fsspec

        try:
            return fsspec.core.url_to_fs(str(self))
        except (ValueError, ImportError) as error:
            raise UserError(f"{self}: expected an address that fsspec opens, got {error}") from None

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, __: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(cls, core_schema.str_schema(pattern=PATTERN))


Place: TypeAlias = Url | Path


def place(name: str | Path) -> Place:
    """The place of this name."""
    return Url(name) if isinstance(name, str) and "://" in name else Path(name)


def absolute(name: str | Path) -> str:
    """The name of a place from any working directory."""
    found = place(name)
    return found if isinstance(found, Url) else str(found.absolute())


def cache_folder() -> Path:
    """The user's cache: `clearhead` in $XDG_CACHE_HOME, which must be absolute, or in ~/.cache.

    Raises UserError for a user without a home.
    """
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (chosen if chosen.is_absolute() else Path.home() / ".cache") / "clearhead"
    except RuntimeError:
        remedy = "set XDG_CACHE_HOME, or try --data.cache with a folder, or --data.storage memory"
        raise UserError(f"HOME: expected the home folder of this user, for a cache, got none; {remedy}") from None


METRICS = "metrics.jsonl"
RECIPE = "recipe.json"
"""The file of a run, and of each of its checkpoints, that says how it is trained."""
BAD_ROWS = "bad_rows.txt"
"""The file of a run that lists the rows of its data that are left out."""
BEST = "best.json"
"""The file that names the best checkpoint."""
FLOOR = "floor.json"
"""What simple methods score on the examples that the run holds out."""
LOCK, OWNER = ".lock", ".owner"
"""The file that is locked, and the file that names the process that writes to the folder."""
