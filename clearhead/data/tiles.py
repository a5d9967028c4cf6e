"""Sizes of pictures, and the tiles of one size or the patches that they are cut into. Imports no torch."""

from math import ceil, floor, sqrt
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from clearhead.config import Config
from clearhead.errors import refuse

if TYPE_CHECKING:
    from PIL.Image import Image, Resampling


MAX_PIXELS = 1 << 26
"""Most pixels of a picture."""
MOST_TIMES = 200
"""How often the shorter edge of a picture of any size may lie along the longer one."""


def check_size(width: int, height: int, *, where: str) -> None:
    """Raises UserError if there are no pixels or too many."""
    if not width or not height:
        raise refuse(where, "at least one pixel", f"{width} x {height}")
    if width * height > MAX_PIXELS:
        raise refuse(where, f"at most {MAX_PIXELS} pixels", f"{width} x {height}", "try a smaller image")


class PixelSize(Config):
    """A fixed number of rows and columns."""

    height: PositiveInt
    width: PositiveInt


class ShortestEdge(Config):
    """The length of the shorter edge. The other edge keeps the proportions."""

    shortest_edge: PositiveInt

    def of(self, height: int, width: int) -> PixelSize:
        short, long = self.shortest_edge, int(self.shortest_edge * max(height, width) / min(height, width))
        return PixelSize(height=long, width=short) if width <= height else PixelSize(height=short, width=long)


class LongestEdge(Config):
    """The length of the longer edge. The other edge keeps the proportions, and is even."""

    longest_edge: Annotated[int, Field(gt=0, le=4096)]

    def of(self, height: int, width: int) -> PixelSize:
        long, ratio = self.longest_edge, width / height
        short = int(long / ratio) if width >= height else int(long * ratio)
        short = max(short + short % 2, 1)
        return PixelSize(height=short, width=long) if width >= height else PixelSize(height=long, width=short)


class Area(Config):
    """The fewest and the most pixels of a picture. Both edges are multiples of a number near the proportions."""

    shortest_edge: PositiveInt
    longest_edge: Annotated[int, Field(gt=0, le=MAX_PIXELS)]

    def of(self, height: int, width: int, multiple: int, *, where: str) -> PixelSize:
        if max(height, width) > MOST_TIMES * min(height, width):
            raise refuse(where, f"a side at most {MOST_TIMES} times as long as the other", f"{width} x {height}")
        y, x, pixels = round(height / multiple), round(width / multiple), height * width
        if y * x * multiple**2 > self.longest_edge:
            shrunk = sqrt(pixels / self.longest_edge)
            y, x = (max(1, floor(edge / shrunk / multiple)) for edge in (height, width))
        elif y * x * multiple**2 < self.shortest_edge:
            grown = sqrt(self.shortest_edge / pixels)
            y, x = (ceil(edge * grown / multiple) for edge in (height, width))
        return PixelSize(height=y * multiple, width=x * multiple)


def tiles_of(
    image: "Image", side: int, *, splits: bool, resample: "Resampling | int"
) -> tuple[NDArray[np.uint8], tuple[int, int]]:
    """n c y x: squares of this side row by row, then the whole picture as one; and the rows and columns of the squares.

    The picture is first stretched to the next larger multiples of the side, the longer edge first (Idefics 3). Without
    `splits`, and for a picture of one square, there are 0 of them.
    """
    if splits:
        image = image.resize(_multiples(image.width, image.height, side), resample=resample)
    whole = _channels_first(image.resize((side, side), resample=resample))
    rows, columns = image.height // side, image.width // side
    if not splits or rows == columns == 1:
        return whole[None], (0, 0)
    cells = _channels_first(image).reshape(len(whole), rows, side, columns, side)
    tiles = cells.transpose(1, 3, 0, 2, 4).reshape(-1, len(whole), side, side)
    return np.concatenate([tiles, whole[None]]), (rows, columns)


def patches_of(image: NDArray[np.float32], side: int, join: int) -> NDArray[np.float32]:
    """c y x -> p k: the patches of a picture, one square of them after the other   (Wang et al. 2024, 2.1)

    A square has `join` x `join` patches of `side` x `side` pixels.
    """
    channels, height, width = image.shape
    cells = image.reshape(channels, height // side // join, join, side, width // side // join, join, side)
    return cells.transpose(1, 4, 2, 5, 0, 3, 6).reshape(-1, channels * side**2)


def _multiples(width: int, height: int, side: int) -> tuple[int, int]:
    ratio = width / height
    if width >= height:
        width = ceil(width / side) * side
        return width, max(ceil(int(width / ratio) / side), 1) * side
    height = ceil(height / side) * side
    return max(ceil(int(height * ratio) / side), 1) * side, height


def _channels_first(image: "Image") -> NDArray[np.uint8]:
    return np.asarray(image).reshape(image.height, image.width, -1).transpose(2, 0, 1)


def centered(pixels: NDArray[np.uint8], length: int, *, axis: int) -> NDArray[np.uint8]:
    """The middle of one axis. A shorter axis is padded with zeros on both sides, an odd one in front."""
    missing = length - pixels.shape[axis]
    if missing > 0:
        around = [(0, 0)] * pixels.ndim
        around[axis] = (ceil(missing / 2), missing // 2)
        return np.pad(pixels, around)
    start = -missing // 2
    return np.take(pixels, range(start, start + length), axis=axis)
