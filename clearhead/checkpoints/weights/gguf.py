"""Reads GGUF files: the metadata, and tensors that are mapped, or dequantized one at a time.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Every length is checked against the remaining bytes before
anything is read, so that a hostile file costs no more than its size. The library `gguf` dequantizes. Imports no torch
before a tensor is read.
"""

import math
import mmap
import re
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

from clearhead.brief import brief
from clearhead.checkpoints.weights.documents import ADAPTER, AGAIN, INDEX, MODEL, shown, size_of
from clearhead.checkpoints.weights.legacy import BIN, BIN_INDEX
from clearhead.errors import UserError, reason

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# --- the header ----------------------------------------------------------------------------------------------------

MAGIC, SWAPPED = b"GGUF", b"FUGG"
VERSIONS = (2, 3)
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Number of a type of value -> its code in `struct`."""
STRING, ARRAY, FLOAT = 8, 9, 6
PLAIN = {0: "float32", 1: "float16", 30: "bfloat16", 28: "float64"}
"""Number of a type of tensor -> its type in torch, for numbers that are stored as they are."""
MOST_DIMENSIONS = 4
ALIGNMENT = 32
"""Bytes between the places where tensors may begin, unless the metadata give another number."""


class Malformed(Exception):
    """A file that is no GGUF file, or is cut short."""


@dataclass(frozen=True)
class Stored:
    """A tensor in a file. The shape is in torch's order."""

    shape: tuple[int, ...]
    kind: int
    """The number of its type, as in `gguf.GGMLQuantizationType`."""
    start: int
    n_bytes: int
    part: int = 0
    """The number of its file, if the model is in several."""

    @property
    def count(self) -> int:
        """The number of its numbers."""
        return math.prod(self.shape)

    @property
    def is_plain(self) -> bool:
        """True if the numbers are stored as they are."""
        return self.kind in PLAIN


def library(where: str) -> ModuleType:
    """The library `gguf`. Raises UserError if it is not installed."""
    try:
        import gguf
    except ImportError:
        raise UserError(
            f"{where}: expected the package gguf, which reads and writes quantized numbers, got none;"
            " try pip install 'clearhead[gguf]'"
        ) from None
    return gguf


class _Cursor:
    """Reads one value after the other."""

    def __init__(self, content: mmap.mmap) -> None:
        self.content, self.at = content, 0

    def take(self, n: int) -> bytes:
        if n > len(self.content) - self.at:
            raise Malformed(f"a value of {n:,} bytes where {len(self.content) - self.at:,} are left")
        self.at += n
        return self.content[self.at - n : self.at]

    def number(self, code: str) -> Any:
        (value,) = struct.unpack(f"<{code}", self.take(struct.calcsize(code)))
        return value

    def text(self) -> str:
        return self.take(self.number("Q")).decode("utf-8")

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            return self.array()
        if kind not in SCALARS:
            raise Malformed(f"a value of type {kind}")
        return _decimal(self.number(SCALARS[kind])) if kind == FLOAT else self.number(SCALARS[kind])

    def array(self) -> list[Any]:
        kind, n = self.number("I"), self.number("Q")
        if kind == STRING:
            if 8 * n > len(self.content) - self.at:
                raise Malformed(f"{n:,} texts where {len(self.content) - self.at:,} bytes are left")
            return [self.text() for _ in range(n)]
        if kind not in SCALARS:
            raise Malformed(f"a list of values of type {kind}")
        code = SCALARS[kind]
        return [*struct.unpack(f"<{n}{code}", self.take(n * struct.calcsize(code)))]


def _decimal(value: float) -> float:
    """The shortest decimal number that a float32 stands for: 1e-05, where it holds 9.99999975e-06."""
    import numpy as np

    if not math.isfinite(value):
        raise Malformed(f"{value} as a value")
    return float(str(np.float32(value)))


def header(content: mmap.mmap, where: str) -> tuple[dict[str, Any], dict[str, Stored]]:
    """The metadata and the tensors by name. Raises Malformed."""
    cursor = _Cursor(content)
    magic = cursor.take(4)
    if magic not in (MAGIC, SWAPPED):
        raise Malformed("a file of another kind")
    version = cursor.number("I")
    if version not in VERSIONS:
        is_swapped = magic == SWAPPED or not version & 0xFFFF
        raise Malformed("one for machines with the other order of bytes" if is_swapped else f"version {version}")
    n_tensors, n_values = cursor.number("Q"), cursor.number("Q")
    metadata: dict[str, Any] = {}
    for _ in range(n_values):
        key = cursor.text()
        if key in metadata:
            raise Malformed(f"{shown(key)} twice")
        metadata[key] = cursor.value(cursor.number("I"))
    alignment = metadata.get("general.alignment", ALIGNMENT)
    if not isinstance(alignment, int) or alignment <= 0 or alignment % 8:
        raise Malformed(f"general.alignment={shown(str(alignment))}")
    found: dict[str, tuple[tuple[int, ...], int, int]] = {}
    for _ in range(n_tensors):
        name = cursor.text()
        n = cursor.number("I")
        if name in found or not 0 < n <= MOST_DIMENSIONS:
            raise Malformed(f"{shown(name)} {'twice' if name in found else f'with {n} dimensions'}")
        shape = tuple(reversed([cursor.number("Q") for _ in range(n)]))
        found[name] = (shape, cursor.number("I"), cursor.number("Q"))
    start = -(-cursor.at // alignment) * alignment
    return metadata, {
        name: _stored(shown(name), where, shape, kind, start + offset, len(content))
        for name, (shape, kind, offset) in found.items()
    }


def _stored(name: str, where: str, shape: tuple[int, ...], kind: int, start: int, size: int) -> Stored:
    block, n_bytes = _sizes(name, where, kind)
    count = math.prod(shape)
    if not count or shape[-1] % block:
        raise Malformed(f"{name} of shape {list(shape)}")
    n_bytes *= count // block
    if start % 8 or start + n_bytes > size:
        raise Malformed(f"{size:,} bytes where {name} ends at {start + n_bytes:,}")
    return Stored(shape, kind, start, n_bytes)


def _sizes(name: str, where: str, kind: int) -> tuple[int, int]:
    """The numbers and the bytes of one block of a type."""
    if kind in PLAIN:
        return 1, {"float64": 8, "float32": 4}.get(PLAIN[kind], 2)
    gguf = library(f"{where}:{name}")
    try:
        return gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)]
    except (KeyError, ValueError):
        raise Malformed(f"{name} of the unknown type {kind}") from None


# --- the file ------------------------------------------------------------------------------------------------------

SUFFIX = ".gguf"
AT_ONCE = 1 << 20
"""The numbers that are dequantized at once, which bounds the memory for intermediate results."""
PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")
"""The name of a file with a part of a model: its stem, its number from 1, and how many there are."""


@dataclass(frozen=True)
class GgufFile:
    """A model in one file, or in several: its metadata and its tensors by name."""

    __repr__ = brief

    path: Path
    """The file, or the first one."""
    metadata: Mapping[str, Any]
    tensors: Mapping[str, Stored]
    contents: tuple[mmap.mmap, ...]
    """Each whole file, mapped privately: a write changes neither the file nor what another reader sees."""

    @classmethod
    def open(cls, path: Path) -> Self:
        """Reads the header, and those of the other parts of a model in several files.

        Raises UserError for a file that is cut short, malformed or of another format, and for a part that is missing.
        """
        metadata, tensors, content = _opened(path)
        if metadata.get("split.count", 0) in (0, 1):
            return cls(path, metadata, tensors, (content,))
        paths = _parts(path, metadata["split.count"])
        opened = [_opened(part) for part in paths]
        together: dict[str, Stored] = {}
        for number, (part, (said, found, _)) in enumerate(zip(paths, opened, strict=True)):
            if (said.get("split.no"), said.get("split.count")) != (number, len(paths)):
                got = f"split.no={said.get('split.no')} and split.count={said.get('split.count')}"
                raise UserError(f"{part}: expected part {number} of {len(paths)}, from 0, got {got}; {AGAIN}")
            if twice := found.keys() & together.keys():
                raise UserError(f"{part}:{shown(min(twice))}: expected it in one part, got it in two; {AGAIN}")
            together |= {name: replace(stored, part=number) for name, stored in found.items()}
        metadata = opened[0][0]
        if metadata.get("split.tensors.count", len(together)) != len(together):
            expected = metadata["split.tensors.count"]
            raise UserError(f"{paths[0]}: expected {expected} tensors in all parts, got {len(together)}; {AGAIN}")
        return cls(paths[0], metadata, together, tuple(content for *_, content in opened))

    def dtype_of(self, name: str) -> "torch.dtype":
        """The type of a tensor's numbers, which is float32 for quantized ones."""
        import torch

        return getattr(torch, PLAIN.get(self.tensors[name].kind, "float32"))

    def read(self, name: str, dtype: "torch.dtype") -> "Tensor":
        """A tensor: mapped in its own type, or dequantized to `dtype`.

        Raises UserError for a type that the library `gguf` does not dequantize.
        """
        import torch

        stored, content = self.tensors[name], self.contents[self.tensors[name].part]
        if stored.is_plain:
            found = torch.frombuffer(content, dtype=self.dtype_of(name), count=stored.count, offset=stored.start)
            return found.view(stored.shape)
        gguf = library(f"{self.path}:{shown(name)}")
        rows = torch.frombuffer(content, dtype=torch.uint8, count=stored.n_bytes, offset=stored.start)
        rows = rows.view(stored.count // stored.shape[-1], -1)
        values = torch.empty((len(rows), stored.shape[-1]), dtype=dtype)
        step = max(1, AT_ONCE // stored.shape[-1])
        kind = gguf.GGMLQuantizationType(stored.kind)
        try:
            for start in range(0, len(rows), step):
                part = gguf.quants.dequantize(rows[start : start + step].numpy(), kind)
                values[start : start + step] = torch.from_numpy(part)
        except NotImplementedError:
            raise UserError(
                f"{self.path}:{shown(name)}: expected a type that the library gguf dequantizes, got {kind.name};"
                " try the same model as Q4_K_M, Q8_0 or F16"
            ) from None
        self.release(name)
        return values.view(stored.shape)

    def release(self, name: str) -> None:
        """Gives back the memory of a tensor that was copied. It is read from the file again where it is needed."""
        stored, page = self.tensors[name], mmap.PAGESIZE
        first, last = -(-stored.start // page) * page, (stored.start + stored.n_bytes) // page * page
        if last > first and sys.platform != "win32":
            self.contents[stored.part].madvise(mmap.MADV_DONTNEED, first, last - first)

    def vector(self, name: str) -> list[float] | None:
        """The numbers of a small tensor; None without one of this name."""
        import torch

        return self.read(name, torch.float32).flatten().tolist() if name in self.tensors else None


def _opened(path: Path) -> tuple[dict[str, Any], dict[str, Stored], mmap.mmap]:
    """The metadata, the tensors and the content of one file."""
    size_of(path)
    try:
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        return *header(content, str(path)), content
    except UserError:
        raise
    except (Malformed, OSError, ValueError, OverflowError) as error:  # ValueError: UTF-8, and an empty file
        raise UserError(f"{path}: expected a whole GGUF file, got {reason(error)}; {AGAIN}") from None


def _parts(path: Path, count: object) -> list[Path]:
    """All parts of the model that a given part belongs to, in order. Raises UserError if one is missing."""
    named = PART.fullmatch(path.name)
    if named is None or int(named[3]) != count:
        raise UserError(
            f"{path}: expected a name such as MODEL-00001-of-{str(count)[:5]:0>5}.gguf for a part of {str(count)[:5]},"
            " got another; try the names that the parts came with"
        )
    paths = [path.with_name(f"{named[1]}-{i:05}-of-{named[3]}{SUFFIX}") for i in range(1, int(named[3]) + 1)]
    for part in paths:
        if not part.is_file():
            raise UserError(f"{part}: expected this part of the model, got no such file; put all parts into one folder")
    return paths


def gguf_in(place: Path) -> Path | None:
    """The GGUF file that a path is, or the only one of a folder without other weights; of a model in several, a part.

    None if there is none. Raises UserError if a folder has several models.
    """
    if place.is_file():
        return place if place.suffix == SUFFIX else None
    if any((place / name).exists() for name in (MODEL, INDEX, BIN, BIN_INDEX, ADAPTER)):
        return None
    found = sorted(place.glob(f"*{SUFFIX}"))
    named = [PART.fullmatch(path.name) for path in found]
    of_one = len({one and (one[1], one[3]) for one in named}) == 1 and all(named)
    if len(found) > 1 and not of_one:
        names = ", ".join(path.name for path in found[:4])
        raise UserError(f"{place}: expected one GGUF file, got {names}; try {found[0]}")
    return found[0] if found else None
