"""Numbers as bytes: uint8 for pixels, float16 for tooltips, float32 for what is quoted.

Each says how far it may be off. Nothing that is not finite is ever encoded: a masked cell is known from its mask.
"""

from typing import Literal

import torch
from torch import Tensor

from clearhead.errors import UserError

Codec = Literal["float32", "float16"]

LARGEST_HALF = 65504.0


def to_pixels(values: Tensor) -> tuple[Tensor, Tensor]:
    """round(255 x / max of its row), and the maxima: at most max / 510 off, and half a last digit of float32.

    A row is along the last axis, of numbers that are not negative.
    """
    _check_finite(values)
    if bool((values < 0).any()):
        raise ValueError("pixels are of numbers that are not negative")
    largest = values.float().amax(-1)
    share = values.double() / largest.double().clamp(min=torch.finfo(torch.float32).tiny)[..., None]
    return (share * 255).round().clamp(max=255).to(torch.uint8), largest


def from_pixels(pixels: Tensor, largest: Tensor) -> Tensor:
    """The inverse of `to_pixels`, float32."""
    return (pixels.double() / 255 * largest.double()[..., None]).float()


def to_half(values: Tensor) -> Tensor:
    """float16, at most |x| / 2048 + 2^-25 off; UserError for a number beyond its range."""
    _check_finite(values)
    most = float(values.abs().max()) if values.numel() else 0.0
    if most > LARGEST_HALF:
        raise UserError(f"float16: expected numbers up to {LARGEST_HALF:g}, got {most:g}; try float32")
    return values.half()


def encode(values: Tensor, codec: Codec) -> bytes:
    """Little-endian, row by row. float32 is exact."""
    _check_finite(values)
    stored = to_half(values) if codec == "float16" else values.float()
    return stored.contiguous().numpy().astype("<f2" if codec == "float16" else "<f4").tobytes()


def decode(content: bytes, codec: Codec, shape: tuple[int, ...]) -> Tensor:
    """The inverse of `encode`, float32; UserError unless the bytes are those of the shape."""
    dtype, width = (torch.float16, 2) if codec == "float16" else (torch.float32, 4)
    count = 1
    for length in shape:
        count *= length
    if len(content) != count * width:
        raise UserError(f"tensor: expected {count * width} bytes, got {len(content)}; try reading it again")
    if not count:
        return torch.zeros(shape)
    return torch.frombuffer(bytearray(content), dtype=dtype).float().reshape(shape)


def _check_finite(values: Tensor) -> None:
    if not bool(values.isfinite().all()):
        raise ValueError("numbers that are not finite are never encoded")
