"""Turns images into pixels as preprocessor_config.json describes. Imports no torch, and Pillow only on use.

An untrusted file may claim any size. Its header is checked before any pixel is decoded.
"""

import stat
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, JsonValue, PositiveFloat, PositiveInt, field_validator, model_validator

from clearhead.data.preprocessor import ANOTHER, Preprocessor
from clearhead.data.tiles import Area, LongestEdge, PixelSize, ShortestEdge, centered, check_size, patches_of, tiles_of
from clearhead.errors import UserError, reason, refuse, require

if TYPE_CHECKING:
    from PIL.Image import Image

    Picture: TypeAlias = str | Path | bytes | Image | NDArray[Any]


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
    require("images", "PIL.Image", "data", "pillow")
    from PIL import Image

    if isinstance(picture, str | Path | bytes):
        given = picture if isinstance(picture, bytes) else Path(picture)
        where = where if isinstance(picture, bytes) else str(picture)
        return _channels(_read(given, where), n_channels, on_white=on_white)
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
    require("images", "PIL.Image", "data", "pillow")
    with _file(path, str(path)) as image:
        turned = image.getexif().get(_ORIENTATION, 1) >= _ON_ITS_SIDE
        height, width = (image.width, image.height) if turned else (image.height, image.width)
        return height, width, image.mode in _GREY


def _read(given: Path | bytes, where: str) -> "Image":
    from PIL import ImageOps

    with _file(given, where) as image:
        return ImageOps.exif_transpose(image).convert("RGB")


@contextmanager
def _file(given: Path | bytes, where: str) -> Iterator["Image"]:
    """A picture's file, or the content of one, after its header was checked."""
    from PIL import Image

    n_bytes = len(given) if isinstance(given, bytes) else _size_of(given)
    if n_bytes > _MAX_BYTES:
        raise refuse(where, f"an image of at most {_MAX_BYTES} bytes", n_bytes)
    source = BytesIO(given) if isinstance(given, bytes) else given
    with _decoding(where), Image.open(source, formats=_FORMATS) as image:
        check_size(*image.size, where=where)
        _check_mode(image, where=where)
        # A camera's JPEG may hold previews behind the picture.
        if image.format != "MPO" and (n := getattr(image, "n_frames", 1)) > 1:
            raise refuse(where, "a picture of one frame", f"{n} frames", "save one of them as a file")
        yield image


def _size_of(path: Path) -> int:
    """The bytes of a file. Raises UserError unless it is one."""
    try:
        about = path.stat()
    except (OSError, ValueError) as error:
        raise refuse(path, "an image file", reason(error)) from None
    if not stat.S_ISREG(about.st_mode):
        raise refuse(path, "an image file", "a folder" if path.is_dir() else "something else")
    return about.st_size


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
        got = f"{array.dtype} from {array.min()} to {array.max()}"
        raise UserError(f"{where}: expected whole numbers from 0 to 255, got {got}; try (255 * x).astype('uint8')")
    pixels = array.astype(np.uint8)
    return Image.fromarray(np.ascontiguousarray(pixels[..., 0] if pixels.shape[2:] == (1,) else pixels))


def _channels(image: "Image", n_channels: int, *, on_white: bool) -> "Image":
    from PIL import Image

    if on_white and ("A" in image.getbands() or image.info.get("transparency") is not None):
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert(_MODES[n_channels])


_CLIP: Final[Mapping[str, JsonValue]] = {
    "default_to_square": False,
    "size": {"shortest_edge": 224},
    "crop_size": 224,
    "do_center_crop": True,
    "do_convert_rgb": True,
    "resample": 3,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
_TILED: Final[Mapping[str, JsonValue]] = {
    "resample": 1,
    "do_convert_rgb": True,
    "size": {"longest_edge": 1456},
    "max_image_size": {"longest_edge": 364},
    "do_image_splitting": True,
}
_IN_SQUARES: Final[Mapping[str, JsonValue]] = {
    **{name: value for name, value in _CLIP.items() if name not in ("crop_size", "do_center_crop")},
    "size": {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280},
    "patch_size": 14,
    "temporal_patch_size": 2,
}
"""Those of a file with merge_size."""
_DEFAULTS: Final[Mapping[str, Mapping[str, JsonValue]]] = {
    "CLIP": _CLIP,
    "Bit": _CLIP,
    "Siglip": {"default_to_square": False, "resample": 3, "do_convert_rgb": True},
    "DeiT": {"size": 256, "crop_size": 224, "do_center_crop": True, "resample": 3},
    "Idefics3": _TILED,
    "SmolVLM": _TILED,
    "Gemma3": {"do_convert_rgb": True},
    "DINOv3": {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]},
}
"""The fields that a file may leave out, by the beginning of the class that it names, where that is not ViT's."""


Statistic = float | Annotated[tuple[float, ...], Field(min_length=1)]
"""One number for all channels, or one per channel."""


class ImageConfig(Preprocessor):
    """pixels = (crop(resize(image)) * rescale_factor - image_mean) / image_std"""

    ignored = frozenset(
        "image_processor_type feature_extractor_type processor_class transformers_version _valid_processor_keys"
        " _valid_kwargs_names model_input_names image_seq_length device disable_grouping return_tensors"
        " return_row_col_info video_sampling".split()
    )
    only: ClassVar[Mapping[str, JsonValue]] = {
        "data_format": "channels_first",
        "do_flip_channel_order": False,
        "do_pad": False,
        "do_pan_and_scan": False,
        "do_reduce_labels": False,
    }
    expected: ClassVar[Mapping[str, str]] = {
        "size": "height and width, one number for both, shortest_edge or longest_edge",
        "crop_size": "height and width, or one number for both",
        "resample": "one of Pillow's codes 0 to 5",
        "image_mean": "a number, or one a channel",
        "image_std": "a number, or one a channel",
    }

    do_resize: bool = True
    size: PixelSize | ShortestEdge | LongestEdge | Area = PixelSize(height=224, width=224)
    resample: Literal[0, 1, 2, 3, 4, 5] = 2
    """Pillow's codes: nearest, Lanczos, bilinear, bicubic, box, Hamming."""
    do_center_crop: bool = False
    crop_size: PixelSize | None = None
    """Smaller images are padded with black (zeros before rescaling)."""
    max_image_size: LongestEdge | None = None
    """The side of the tiles that a picture is cut into, each of which becomes one picture."""
    do_image_splitting: bool | None = None
    """False: only the whole picture becomes one of that size."""
    patch_size: Annotated[int, Field(gt=0, le=1024)] | None = None
    """Side of the patches of a picture of any size."""
    merge_size: Annotated[int, Field(gt=0, le=64)] | None = None
    """Side of the squares in which they stand."""
    temporal_patch_size: PositiveInt | None = None
    """How often the network reads each patch."""
    do_rescale: bool = True
    rescale_factor: PositiveFloat = 1 / 255
    do_normalize: bool = True
    image_mean: Statistic = (0.5, 0.5, 0.5)
    image_std: Statistic = (0.5, 0.5, 0.5)
    do_convert_rgb: bool = False
    """Whether transparent pixels are blended onto white. Otherwise transparency is dropped."""

    @property
    def n_channels(self) -> int:
        """The number of means, or 3 if one mean serves all channels."""
        return len(self.image_mean) if isinstance(self.image_mean, tuple) else 3

    @property
    def output(self) -> PixelSize | None:
        """The output size of every picture, or None if it depends on the picture."""
        if self.do_center_crop:
            return self.crop_size
        if (side := self.max_image_size) is not None:
            return PixelSize(height=side.longest_edge, width=side.longest_edge)
        return self.size if self.do_resize and isinstance(self.size, PixelSize) else None

    def size_of(self, image: "Image", *, where: str) -> PixelSize:
        """The size that a picture is resized to. Raises UserError for one that is too large, or too long."""
        size, (width, height) = self.size, image.size
        if isinstance(size, Area):
            assert self.patch_size is not None
            assert self.merge_size is not None
            size = size.of(height, width, self.patch_size * self.merge_size, where=where)
        elif not isinstance(size, PixelSize):
            size = size.of(height, width)
        check_size(size.width, size.height, where=f"{where} resized")
        return size

    @field_validator("size", "crop_size", mode="before")
    @classmethod
    def _square(cls, value: Any) -> Any:
        """One number means a square, two mean height and width."""
        match value:
            case bool():
                return value
            case int(edge):
                return {"height": edge, "width": edge}
            case [height, width]:
                return {"height": height, "width": width}
            case _:
                return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if isinstance(self.size, Area) != (self.patch_size is not None and self.merge_size is not None):
            raise ValueError("size of shortest_edge and longest_edge needs patch_size and merge_size, and they need it")
        if isinstance(self.size, Area) and (self.do_center_crop or not self.do_resize):
            raise ValueError("size of shortest_edge and longest_edge needs do_resize=true and do_center_crop=false")
        if self.do_center_crop and self.crop_size is None:
            raise ValueError("do_center_crop needs crop_size")
        mean, std = self.image_mean, self.image_std
        if isinstance(mean, tuple) and isinstance(std, tuple) and len(mean) != len(std):
            raise ValueError(f"image_mean has {len(mean)} values, image_std {len(std)}: give one a channel to both")
        if min(std if isinstance(std, tuple) else [std]) <= 0:
            raise ValueError(f"image_std={std} must be positive")
        return self

    @classmethod
    def of(cls, document: Mapping[str, JsonValue], *, where: str) -> Self:
        """Reads the file, in which what a class of the reference library presupposes is left out."""
        kind = str(document.get("image_processor_type") or document.get("feature_extractor_type") or "")
        named = (fields for beginning, fields in _DEFAULTS.items() if kind.startswith(beginning))
        own = _IN_SQUARES if document.get("merge_size") is not None else next(named, {})
        values = {**own, **{name: value for name, value in document.items() if value is not None}}
        for older, edge in (("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge")):
            if (pixels := values.pop(older, None)) is not None and isinstance(size := values.get("size"), Mapping):
                values["size"] = {**{name: n for name, n in size.items() if name != older}, edge: pixels}
        if not values.pop("default_to_square", True) and isinstance(size := values.get("size"), int):
            values["size"] = {"shortest_edge": size}
        if "max_image_size" in values:  # All tiles have one size, so that padding changes nothing.
            values.pop("do_pad", None)
        return cls.read(values, where=where)

    def to_document(self) -> dict[str, JsonValue]:
        """preprocessor_config.json with every field written out, the inverse of `of`.

        It names a class of the reference library that does what these fields say in older versions too, but for
        pictures of any size, for which the library knows the class by the model.
        """
        kind = "CLIP" if self.do_center_crop or isinstance(self.size, ShortestEdge) else "Siglip"
        kind = kind if self.max_image_size is None else "Idefics3"
        named = {"image_processor_type": f"{kind}ImageProcessor"} if self.patch_size is None else {}
        return {**named, **self.model_dump(mode="json", exclude_none=True)}


class ImageProcessor:
    """Pictures -> pixels b c y x in float32, equal to the reference library's with Pillow.

    A picture is a path, a file in bytes, a Pillow image, or an array y x (c) or c y x of whole numbers from 0 to 255.
    """

    def __init__(self, config: ImageConfig, *, n_channels: int | None = None, where: str = "preprocessor") -> None:
        """`n_channels` is the model's and defaults to that of `config`. `where` names the file in errors."""
        self.config, self._where = config, where
        self.n_channels = n_channels or config.n_channels
        if self.n_channels not in {1, 3}:
            raise UserError(f"{where}: expected 1 or 3 channels, got {self.n_channels}; use model.network")
        if config.do_convert_rgb and self.n_channels != 3:
            raise UserError(f"{where}:do_convert_rgb: expected false for one channel, got true; try false")
        for size in (config.size, config.crop_size):
            if isinstance(size, PixelSize):
                check_size(size.width, size.height, where=where)
        self._values = self._table()

    def __call__(self, images: Sequence["Picture"]) -> NDArray[np.float32]:
        return self.values(self.sized(images))

    def framed(
        self, images: Sequence["Picture"], *, most: int | None = None
    ) -> tuple[NDArray[np.float32], list[tuple[int, int]]]:
        """The values of pictures, and of each what `frames` says.

        Raises UserError for no picture, and if pictures of any size have more than `most` vectors.
        """
        if not images:
            raise refuse("images", "a list of at least one image", "none", "try [image]")
        each, squares = list[tuple[NDArray[np.uint8], tuple[int, int]]](), 0
        for i, image in enumerate(images):
            each.append(self.frames(image, where=f"images[{i}]"))
            squares += prod(each[-1][1]) // self.config.merge_size**2 if self.config.merge_size else 0
            if most is not None and squares > most:
                raise refuse(f"images[{i}]", f"at most {most} tokens in all pictures", squares, "give smaller ones")
        return self.joined([frames for frames, _ in each]), [grid for _, grid in each]

    def joined(self, frames: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """n c y x: the values of the frames of several pictures; or p k: the patches of pictures of any size."""
        if (side := self.config.patch_size) is None or (join := self.config.merge_size) is None:
            return self.values(np.concatenate(frames))
        return np.concatenate([patches_of(self.values(one)[0], side, join) for one in frames])

    def frames(self, picture: "Picture", *, where: str) -> tuple[NDArray[np.uint8], tuple[int, int]]:
        """n c y x: the tiles of a picture row by row, and the whole; and the rows and columns of its tiles.

        At any size those of its patches; 0 of a picture that is not cut.
        """
        config = self.config
        if config.max_image_size is None:
            whole, side = self.resized(picture, where=where)[None], config.patch_size if config.merge_size else None
            return whole, (0, 0) if side is None else (whole.shape[2] // side, whole.shape[3] // side)
        image = load(picture, n_channels=self.n_channels, on_white=config.do_convert_rgb, where=where)
        if config.do_resize:
            size = config.size_of(image, where=where)
            image = image.resize((size.width, size.height), resample=config.resample)
        splits = bool(config.do_image_splitting)
        return tiles_of(image, config.max_image_size.longest_edge, splits=splits, resample=config.resample)

    def sized(self, images: Sequence["Picture"]) -> NDArray[np.uint8]:
        """b c y x: the pictures resized and cropped, before rescaling.

        Raises UserError for a picture that cannot be read, and unless all get one size.
        """
        if isinstance(images, str) or not isinstance(images, Sequence) or not images:
            raise UserError("images: expected a list of at least one image; try [image]")
        pixels = [self.resized(image, where=f"images[{i}]") for i, image in enumerate(images)]
        shapes = {" x ".join(map(str, array.shape)) for array in pixels}
        if len(shapes) > 1:
            raise UserError(f"images: expected one size, got {', '.join(sorted(shapes))}; try one at a time, or a crop")
        return np.stack(pixels)

    def values(self, sized: NDArray[np.uint8]) -> NDArray[np.float32]:
        """b c y x -> b c y x: the bytes rescaled and normalised."""
        return np.stack([self._values[channel][sized[:, channel]] for channel in range(self.n_channels)], axis=1)

    def resized(self, picture: "Picture", *, where: str) -> NDArray[np.uint8]:
        """c y x: one picture resized and cropped. `where` names one that has no file in errors."""
        config = self.config
        image = load(picture, n_channels=self.n_channels, on_white=config.do_convert_rgb, where=where)
        if config.do_resize:
            size = config.size_of(image, where=str(picture) if isinstance(picture, str | Path) else where)
            image = image.resize((size.width, size.height), resample=config.resample)
        bytes_ = np.asarray(image).reshape(image.height, image.width, self.n_channels).transpose(2, 0, 1)
        if config.do_center_crop and config.crop_size is not None:
            bytes_ = centered(centered(bytes_, config.crop_size.height, axis=1), config.crop_size.width, axis=2)
        return bytes_

    def explicit(self) -> ImageConfig:
        """The config with a mean and a standard deviation for each channel."""
        both = {name: tuple(self._per_channel(name)[:, 0].tolist()) for name in ("image_mean", "image_std")}
        return self.config.model_copy(update=both)

    def _table(self) -> NDArray[np.float32]:
        """c 256: the pixel for each value of a byte, so that no pixel needs arithmetic of its own."""
        config = self.config
        table = np.tile(np.arange(256, dtype=np.float64), (self.n_channels, 1))
        with np.errstate(all="ignore"):
            table = (table * config.rescale_factor if config.do_rescale else table).astype(np.float32)
            if config.do_normalize:
                table = (table - self._per_channel("image_mean")) / self._per_channel("image_std")
        if not np.isfinite(table).all():
            raise UserError(
                f"{self._where}: expected a rescale_factor, image_mean and image_std that leave pixels finite, got"
                f" others; {ANOTHER}"
            )
        return table

    def _per_channel(self, name: Literal["image_mean", "image_std"]) -> NDArray[np.float32]:
        value = self.config.image_mean if name == "image_mean" else self.config.image_std
        values = value if isinstance(value, tuple) else (value,) * self.n_channels
        if len(values) != self.n_channels:
            raise UserError(f"{self._where}:{name}: expected {self.n_channels} values, got {len(values)}; {ANOTHER}")
        return np.array(values, dtype=np.float32)[:, None]
