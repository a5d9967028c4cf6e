"""Cuts a picture into tiles of one size, which are read like pictures. Imports no torch."""

from math import ceil
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image, Resampling


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


def _multiples(width: int, height: int, side: int) -> tuple[int, int]:
    ratio = width / height
    if width >= height:
        width = ceil(width / side) * side
        return width, max(ceil(int(width / ratio) / side), 1) * side
    height = ceil(height / side) * side
    return max(ceil(int(height * ratio) / side), 1) * side, height


def _channels_first(image: "Image") -> NDArray[np.uint8]:
    return np.asarray(image).reshape(image.height, image.width, -1).transpose(2, 0, 1)
