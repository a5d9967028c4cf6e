"""Reads WAV files. Imports no torch."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clearhead.brief import brief
from clearhead.errors import UserError, reason

WHOLE, FLOATS, EXTENSIBLE = 1, 3, 0xFFFE
"""The formats of samples in a WAV file: whole numbers, floats, or one that a longer header names."""
LOWEST = 1000
"""Samples a second of the slowest sound that is read: a header that claims fewer asks for hours of silence."""
CONVERT = "convert it: ffmpeg -i SOUND -ar 16000 -ac 1 SOUND.wav"


@dataclass(frozen=True)
class Wave:
    """A sound of one channel."""

    __repr__ = brief

    samples: NDArray[np.float32]
    """n: from -1 to 1."""
    rate: int
    """Samples a second."""


@dataclass(frozen=True)
class _Format:
    code: int
    n_channels: int
    rate: int
    bits: int


def read_wave(path: Path) -> Wave:
    """The mean of the channels of a WAV file: 8, 16, 24 or 32 bits, or floats of 32 or 64 bits.

    Raises UserError, which names the file, for any other file.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: expected a sound file, got {reason(error)}; check the path") from None
    if content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        got = "an empty file" if not content else f"one that begins with {content[:4]!r}"
        raise UserError(f"{path}: expected a WAV file, got {got}; {CONVERT}")
    chunks = dict(reversed([*_chunks(content)]))
    if b"fmt " not in chunks or b"data" not in chunks:
        raise UserError(f"{path}: expected a WAV file with a format and samples, got one without; {CONVERT}")
    form = _format(chunks[b"fmt "], path)
    samples = _samples(chunks[b"data"], form)
    samples = samples[: len(samples) // form.n_channels * form.n_channels]
    mean = samples.reshape(-1, form.n_channels).mean(1, dtype=np.float64).astype(np.float32)
    if not len(mean) or not np.isfinite(mean).all():
        got = "numbers that are not finite" if len(mean) else "none"
        raise UserError(f"{path}: expected a WAV file with at least one sample, got {got}; try another file")
    return Wave(mean, form.rate)


def _chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The name and content of each chunk. A recorder that was cut off leaves a last one that is too short."""
    at = 12
    while at + 8 <= len(content):
        name, (size,) = content[at : at + 4], struct.unpack_from("<I", content, at + 4)
        yield name, content[at + 8 : at + 8 + size]
        at += 8 + size + size % 2


def _format(chunk: bytes, path: Path) -> _Format:
    if len(chunk) < 16:
        raise UserError(f"{path}: expected a format of 16 bytes or more, got {len(chunk)}; {CONVERT}")
    code, n_channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", chunk)
    if code == EXTENSIBLE and len(chunk) >= 26:
        (code,) = struct.unpack_from("<H", chunk, 24)
    known = {WHOLE: (8, 16, 24, 32), FLOATS: (32, 64)}
    if bits not in known.get(code, ()):
        raise UserError(f"{path}: expected whole or floating samples, got {bits} bits of format {code}; {CONVERT}")
    if not n_channels or rate < LOWEST:
        got = f"{n_channels} and {rate}"
        raise UserError(f"{path}: expected channels, and {LOWEST} samples a second or more, got {got}; {CONVERT}")
    return _Format(code, n_channels, rate, bits)


def _samples(data: bytes, form: _Format) -> NDArray[np.float32] | NDArray[np.float64]:
    """All channels in turn, from -1 to 1."""
    width = form.bits // 8
    data = data[: len(data) // width * width]
    if form.code == FLOATS:
        return np.frombuffer(data, f"<f{width}")
    if form.bits == 8:  # The only width without a sign.
        return (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / 128
    if form.bits == 24:  # As the upper bytes of 32 bits.
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        return (wide.view("<i4")[:, 0] / 2.0**31).astype(np.float32)
    return (np.frombuffer(data, f"<i{width}") / 2.0 ** (form.bits - 1)).astype(np.float32)
