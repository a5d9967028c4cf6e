"""Loads pictures from files, arrays and Pillow as 8-bit RGB or grey. Imports no torch, and Pillow only on use.

An untrusted file may claim any size. Its header is checked before any pixel is decoded.
"""

import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import UserError, reason, refuse

if TYPE_CHECKING:
    from PIL.Image import Image

    Picture: TypeAlias = str | Path | Image | NDArray[Any]

MAX_PIXELS = 1 << 26
"""Most pixels of a picture."""

_MAX_BYTES = 1 << 28
_FORMATS = ("PNG", "JPEG", "WEBP")
_MODES = {1: "L", 3: "RGB"}
_GREY = frozenset(("1", "L", "LA", "La"))
_ORIENTATION, _ON_ITS_SIDE = 0x0112, 5
"""The EXIF tag of a picture's orientation, and the first of its values for a rotation by 90 degrees."""
_8_BITS = frozenset("1 L LA La P PA RGB RGBA RGBa RGBX CMYK YCbCr HSV LAB".split())


def load(picture: "Picture", *, n_channels: int, on_white: bool, where: str) -> "Image":
    """The picture with 1 channel (grey) or 3 (RGB). `on_white` blends transparent pixels onto white.

    As in the reference library, a file is turned upright by its EXIF orientation and loses its transparency, and an
    image in memory is taken unchanged. `where` names an image that has no file.
    """
    _require_pillow()
    from PIL import Image

    if isinstance(picture, str | Path):
        return _channels(_read(Path(picture)), n_channels, on_white=on_white)
    if isinstance(picture, np.ndarray):
        picture = _from_array(picture, where=where)
    if not isinstance(picture, Image.Image):
        raise refuse(where, "a path, an image or an array", type(picture).__name__)
    with _decoding(where):
        check_size(*picture.size, where=where)
        _check_mode(picture, where=where)
        return _channels(picture, n_channels, on_white=on_white)


def about(path: Path) -> tuple[int, int, bool]:
    """The height and width of a picture's file as it is shown, and whether it is grey. Decodes no pixel."""
    _require_pillow()
    with _file(path) as image:
        turned = image.getexif().get(_ORIENTATION, 1) >= _ON_ITS_SIDE
        height, width = (image.width, image.height) if turned else (image.height, image.width)
        return height, width, image.mode in _GREY


def check_size(width: int, height: int, *, where: str) -> None:
    """Raises UserError if there are no pixels or too many."""
    if not width or not height:
        raise refuse(where, "at least one pixel", f"{width} x {height}")
    if width * height > MAX_PIXELS:
        raise refuse(where, f"at most {MAX_PIXELS} pixels", f"{width} x {height}", "try a smaller image")


def _require_pillow() -> None:
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        raise UserError("images: expected the package pillow, got none; try pip install 'clearhead[data]'") from None


def _read(path: Path) -> "Image":
    from PIL import ImageOps

    with _file(path) as image:
        return ImageOps.exif_transpose(image).convert("RGB")


@contextmanager
def _file(path: Path) -> Iterator["Image"]:
    """A picture's file, of which the header is read and checked."""
    from PIL import Image

    where = str(path)
    try:
        about = path.stat()
    except (OSError, ValueError) as error:
        raise refuse(where, "an image file", reason(error)) from None
    if not stat.S_ISREG(about.st_mode):
        raise refuse(where, "an image file", "a folder" if path.is_dir() else "something else")
    if about.st_size > _MAX_BYTES:
        raise refuse(where, f"an image of at most {_MAX_BYTES} bytes", about.st_size)
    with _decoding(where), Image.open(path, formats=_FORMATS) as image:
        check_size(*image.size, where=where)
        _check_mode(image, where=where)
        yield image


@contextmanager
def _decoding(where: str) -> Iterator[None]:
    """Turns any exception of a decoder into a one-line UserError, and suppresses its warnings."""
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except UserError:
        raise
    except UnidentifiedImageError:
        raise refuse(where, "a PNG, JPEG or WebP image", "something else") from None
    except Image.DecompressionBombError as error:
        raise refuse(where, "fewer pixels", error, "try a smaller image") from None
    except Exception as error:  # decoders raise SyntaxError, struct.error, EOFError and more
        raise refuse(where, "a whole image", reason(error)) from None


def _check_mode(image: "Image", *, where: str) -> None:
    if image.mode not in _8_BITS:
        raise refuse(where, "8 bits a channel", f"mode {image.mode}", "try converting it first")


def _from_array(array: NDArray[Any], *, where: str) -> "Image":
    """An image from y x, y x c or c y x with 1, 3 or 4 channels and whole numbers from 0 to 255."""
    from PIL import Image

    shape = " x ".join(map(str, array.shape))
    if array.ndim == 3 and array.shape[0] in {1, 3, 4}:
        array = np.moveaxis(array, 0, -1)
    if array.ndim != 2 and not (array.ndim == 3 and array.shape[-1] in {1, 3, 4}):
        raise UserError(f"{where}: expected y x, y x c or c y x with 1, 3 or 4 channels, got {shape or 'a number'}")
    if not array.size:
        raise UserError(f"{where}: expected at least one pixel, got {shape}")
    if array.dtype.kind not in "iu" or array.min() < 0 or array.max() > 255:
        found = f"{array.dtype} from {array.min()} to {array.max()}"
        raise UserError(f"{where}: expected whole numbers from 0 to 255, got {found}; try (255 * x).astype('uint8')")
    pixels = array.astype(np.uint8)
    return Image.fromarray(np.ascontiguousarray(pixels[..., 0] if pixels.shape[2:] == (1,) else pixels))


def _channels(image: "Image", n_channels: int, *, on_white: bool) -> "Image":
    from PIL import Image

    if on_white and ("A" in image.getbands() or image.info.get("transparency") is not None):
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert(_MODES[n_channels])
