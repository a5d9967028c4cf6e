"""The files of real data that experiments read, in a folder that the user names."""

import os
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from clearhead.errors import UserError

VARIABLE = "CLEARHEAD_SHARED_DATA"

_named: ContextVar[Path | None] = ContextVar("data folder", default=None)


@dataclass(frozen=True)
class DataSet:
    """Files of others, which the project does not distribute."""

    name: str
    folder: str
    """Their folder in the data folder."""
    files: tuple[str, ...]
    origin: str
    """What to download, from where."""

    def path(self, file: str = "") -> Path:
        """The path of a file, or of the data set's folder. Raises UserError unless every file is there."""
        root = _named.get() or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
        if root is None:
            remedy = f"download {self.origin} to FOLDER/{self.folder}, and give --data FOLDER or set {VARIABLE}"
            raise UserError(f"data: expected the folder that holds {self.name}, got none; {remedy}")
        for name in self.files:
            if not (root / self.folder / name).is_file():
                remedy = f"download {self.origin} to {root / self.folder}"
                raise UserError(f"{root / self.folder / name}: expected a file of {self.name}, found none; {remedy}")
        return root / self.folder / file


@cache
def datasets() -> dict[str, DataSet]:
    """All data sets by name."""
    text = (files("clearhead_lab") / "datasets.toml").read_text(encoding="utf-8")
    return {
        name: DataSet(name, one["folder"], tuple(one["files"]), one["origin"])
        for name, one in tomllib.loads(text).items()
    }


@contextmanager
def data_in(folder: Path | None) -> Iterator[None]:
    """Within the context, experiments read their data from this folder, by default from the environment variable's."""
    token = _named.set(folder)
    try:
        yield
    finally:
        _named.reset(token)
