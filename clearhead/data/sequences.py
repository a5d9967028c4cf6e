"""Token ids of many sequences, stored end to end in memory or in files that are read on demand.

Files are read, not memory-mapped, so a process holds little, and a truncated file is an error and not a crash.
Imports no torch.
"""

import io
import os
import weakref
from array import array
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np

from clearhead.brief import brief
from clearhead.config import Config
from clearhead.data.batches import OnDemand
from clearhead.errors import UserError


class Described(Config):
    """The description of sequences stored in files."""

    dtype: str
    n_ids: int
    n_sequences: int
    largest: int


class IdsFile:
    """Ids in a file. Each slice is read on access."""

    def __init__(self, path: Path, n_ids: int, dtype: str) -> None:
        self.path, self.n_ids, self.dtype = path, n_ids, np.dtype(dtype)
        self._file = path.open("rb", buffering=0)
        weakref.finalize(self, self._file.close)

    def __len__(self) -> int:
        return self.n_ids

    def __getitem__(self, which: slice) -> np.ndarray:
        start, stop, _ = which.indices(self.n_ids)
        n_bytes, size = max(0, stop - start) * self.dtype.itemsize, self.dtype.itemsize
        content = bytearray()
        self._file.seek(start * size)
        while len(content) < n_bytes:
            more = self._file.read(n_bytes - len(content))
            if not more:
                raise UserError(
                    f"{self.path}: expected {self.n_ids} token ids, got fewer: the file was truncated; run again"
                )
            content += more
        return np.frombuffer(content, self.dtype)


@dataclass(frozen=True, eq=False)
class Sequences(OnDemand[list[int]]):
    """Sequence i is ids[offsets[i] : offsets[i + 1]]."""

    __repr__ = brief

    ids: np.ndarray | IdsFile
    offsets: np.ndarray
    largest: int
    """The largest id, or -1 if there are no ids."""

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> Self:
        """The sequences of a list, in memory."""
        flat = np.fromiter(chain.from_iterable(sequences), dtype=np.int64)
        return cls(flat, offsets_of(lengths_of(sequences)), largest_of(sequences))

    @property
    def lengths(self) -> np.ndarray:
        """Length of each sequence in ids."""
        return np.diff(self.offsets)

    def read(self, i: int, start: int, stop: int) -> np.ndarray:
        """Ids [start, stop) of sequence i."""
        at = int(self.offsets[i])
        return self.ids[at + start : at + stop]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def make(self, i: int) -> list[int]:
        at = range(len(self))[i]
        return self.ids[int(self.offsets[at]) : int(self.offsets[at + 1])].tolist()


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """Cumulative sums of `lengths`, starting with 0."""
    return np.append(np.int64(0), lengths.cumsum(dtype=np.int64))


def lengths_of(sequences: Sequence[Sequence[int]]) -> np.ndarray:
    """Length of each sequence in ids."""
    return sequences.lengths if isinstance(sequences, Sequences) else np.fromiter(map(len, sequences), np.int64)


def largest_of(sequences: Sequence[Sequence[int]]) -> int:
    """The largest id, or -1 if there are no ids."""
    return sequences.largest if isinstance(sequences, Sequences) else max(map(max, filter(None, sequences)), default=-1)


@dataclass
class Writer:
    """Writes sequences one by one, while they are encoded."""

    file: BinaryIO
    dtype: np.dtype
    lengths: "array[int]" = field(default_factory=lambda: array("q"))
    largest: int = -1
    n_ids: int = 0

    def add(self, sequences: Sequence[Sequence[int]], *, continued: bool = False) -> None:
        """Appends sequences. With `continued` the first extends the last one written before."""
        sizes = list(map(len, sequences))
        flat = np.fromiter(chain.from_iterable(sequences), self.dtype, count=sum(sizes))
        if continued and sizes and self.lengths:
            self.lengths[-1] += sizes.pop(0)
        self.lengths.extend(sizes)
        self.largest = max(self.largest, int(flat.max(initial=0)) if len(flat) else -1)
        self.n_ids += len(flat)
        self.file.write(flat.data)

    def described(self) -> Described:
        """The description of everything written."""
        return Described(dtype=self.dtype.str, n_ids=self.n_ids, n_sequences=len(self.lengths), largest=self.largest)


class Shelf:
    """Stores several kinds of sequences by name, in a folder or in memory, while they are encoded."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.writers: dict[str, Writer] = {}

    def writer(self, name: str, vocab_size: int) -> Writer:
        """A writer for sequences of ids below `vocab_size`."""
        file = io.BytesIO() if self.folder is None else (self.folder / f"{name}.ids").open("wb")
        self.writers[name] = Writer(file, np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4"))
        return self.writers[name]

    def in_memory(self) -> dict[str, Sequences]:
        """Everything written to a shelf in memory."""
        sequences: dict[str, Sequences] = {}
        for name, writer in self.writers.items():
            assert isinstance(writer.file, io.BytesIO)
            ids = np.frombuffer(writer.file.getbuffer(), writer.dtype)
            sequences[name] = Sequences(ids, offsets_of(np.array(writer.lengths, np.int64)), writer.largest)
        return sequences

    def on_disk(self) -> dict[str, Described]:
        """Flushes the files, so that they survive a crash, and describes them."""
        assert self.folder is not None
        for name, writer in self.writers.items():
            lengths = np.array(writer.lengths, "<i8")
            with (self.folder / f"{name}.lengths").open("wb") as file:
                file.write(lengths.data)
                settle(file)
            with writer.file as file:
                settle(file)
        return {name: writer.described() for name, writer in self.writers.items()}

    def close(self) -> None:
        """Closes the files, even if they are incomplete."""
        for writer in self.writers.values():
            with suppress(OSError):  # A full disk fails again here.
                writer.file.close()


def open_sequences(folder: Path, name: str, described: Described) -> Sequences | None:
    """Opens the sequences that a shelf wrote. Returns None if a file does not have the size it was written with."""
    ids, lengths = folder / f"{name}.ids", folder / f"{name}.lengths"
    wanted = {ids: described.n_ids * np.dtype(described.dtype).itemsize, lengths: 8 * described.n_sequences}
    if any(path.stat().st_size != size for path, size in wanted.items()):
        return None
    offsets = offsets_of(np.fromfile(lengths, "<i8"))
    if offsets[-1] != described.n_ids:
        return None
    return Sequences(IdsFile(ids, described.n_ids, described.dtype), offsets, described.largest)


def settle(file: BinaryIO) -> None:
    """Writes the file to the disk itself, so that it survives a crash."""
    file.flush()
    os.fsync(file.fileno())
