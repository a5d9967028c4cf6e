"""`Captured` reads a folder that `capture` wrote: tensors by address, shard by shard."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from clearhead.brief import brief
from clearhead.checkpoints.weights.documents import read_json
from clearhead.errors import UserError
from clearhead.json_text import parse
from clearhead.progress import cached
from clearhead.storage.manifest import MANIFEST, Manifest, verify
from clearhead.trace import nearest

ABOUT, INDEX = "capture.json", "index.json"
"""The file that describes a capture, and the file that marks it as complete."""


def shard_name(number: int) -> str:
    """The name of a shard by its number from 0."""
    return f"shard-{number:05d}.safetensors"


@dataclass(frozen=True)
class Rows:
    """The origin of each vector of an address."""

    __repr__ = brief

    text: Tensor
    """n: the number of the text in the data set, from 0; for lines, the line."""
    position: Tensor
    """n: the position of the token in its text, or -1 for a vector of the whole text."""
    token: Tensor
    """n: the id of the token, or -1."""


class Captured:
    """A folder of captured activations. Values are read from disk on first use."""

    def __init__(self, folder: str | Path) -> None:
        """Raises UserError if the folder holds no capture."""
        self.folder = Path(folder)
        if not (self.folder / ABOUT).is_file() or not (self.folder / MANIFEST).is_file():
            raise UserError(f"{folder}: expected a folder that clearhead capture wrote, got no {ABOUT}; check the path")

    def __repr__(self) -> str:
        end = "" if self.is_complete else ", not complete"
        return f"Captured({str(self.folder)!r}: {len(self.addresses)} addresses, {self.n_texts:,} texts{end})"

    @cached
    def about(self) -> Mapping[str, Any]:
        """The model, the settings and the addresses."""
        return read_json(self.folder / ABOUT)

    @cached
    def _manifest(self) -> Mapping[str, Any]:
        return read_json(self.folder / MANIFEST)

    @property
    def is_complete(self) -> bool:
        """True if every text is there. The shards of an unfinished capture can be read too."""
        return INDEX in self._manifest["files"]

    @property
    def n_texts(self) -> int:
        """The texts that were read, blank ones included."""
        return self._manifest["step"]

    @property
    def shards(self) -> list[str]:
        """The names of the complete shards, in order."""
        return [name for name in self._manifest["files"] if name not in (ABOUT, INDEX)]

    @property
    def addresses(self) -> list[str]:
        """The addresses."""
        return [*self.about["addresses"]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.addresses)

    def __getitem__(self, address: str) -> Tensor:
        """n …: every vector of an address, in memory."""
        return torch.cat([*self.parts(address)])

    def parts(self, address: str) -> Iterator[Tensor]:
        """Yields the vectors of an address, n …, shard by shard."""
        shape = self._fact(address)["shape"]
        return (self._read(shard, address).view(-1, *shape) for shard in self.shards)

    def rows(self, address: str) -> Rows:
        """The text, position and token of each vector of an address."""
        group = self._fact(address)["rows"]
        columns = (torch.cat([self._read(shard, f"{group}.{name}") for shard in self.shards]) for name in _COLUMNS)
        return Rows(*columns)

    def facts(self, shard: str) -> Mapping[str, Any]:
        """The first and last text of a shard, and the SHA-256 of all texts up to its end."""
        with safe_open(self.folder / shard, "pt") as file:
            found = parse(file.metadata()["capture"], where=shard)
        assert isinstance(found, dict)
        return found

    def verify(self) -> Manifest:
        """Compares every file with its SHA-256. Raises UserError, which names one that has changed."""
        return verify(self.folder, others=True, remedy="capture again into another folder")

    def _fact(self, address: str) -> Mapping[str, Any]:
        known = self.about["addresses"]
        if address not in known:
            raise UserError(f"{address}: expected an address of this capture, got none{nearest(address, known)}")
        return known[address]

    def _read(self, shard: str, name: str) -> Tensor:
        with safe_open(self.folder / shard, "pt") as file:
            return file.get_tensor(name)


_COLUMNS = ("text", "position", "token")
