"""The header of a GGUF file: its metadata, and where its tensors are. Imports no torch.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Every length is checked against the remaining bytes before
anything is read, so that a hostile file costs no more than its size.
"""

import math
import mmap
import struct
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from clearhead.checkpoints.weights.documents import shown
from clearhead.errors import UserError

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
        """Whether its numbers are stored as they are."""
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
