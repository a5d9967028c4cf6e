"""Pixels equal to the reference library's with Pillow, its documents read and written, broken files in one line."""

import io
import json
import struct
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from pydantic import JsonValue

from clearhead.data.images import ImageConfig, ImageProcessor, PixelSize, ShortestEdge
from clearhead.errors import UserError
from tests import processes
from tests.files import put

ROOT = Path(__file__).resolve().parents[2]
SIZES = [(1, 1), (7, 5), (32, 32), (33, 90), (240, 17), (300, 301)]
KIND = "ViTImageProcessor"


def noise(height: int, width: int, n_channels: int = 3, seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, n_channels), dtype=np.uint8)
    return Image.fromarray(pixels[..., 0] if n_channels == 1 else pixels)


def reference(config: ImageConfig, pictures: Sequence[Any], folder: Path) -> NDArray[np.float32]:
    """What the library computes that opens our document."""
    from transformers import AutoImageProcessor
    from transformers.image_processing_backends import PilBackend

    folder.mkdir(exist_ok=True)
    put(folder / "preprocessor_config.json", json.dumps(config.to_document() | {"image_processor_type": KIND}))
    processor = AutoImageProcessor.from_pretrained(folder)
    assert isinstance(processor, PilBackend)
    return np.stack([np.asarray(processor(picture)["pixel_values"][0]) for picture in pictures])


def assert_equal(config: ImageConfig, pictures: Sequence[Any], folder: Path) -> None:
    expected = reference(config, pictures, folder)
    got = ImageProcessor(config)(pictures)
    assert got.dtype == np.float32
    assert got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)


SIDES = [
    *({"size": {"height": height, "width": width}} for height, width in ((24, 24), (9, 40), (230, 13))),
    *(
        {"size": {"shortest_edge": edge}, "do_center_crop": True, "crop_size": crop}
        for edge, crop in ((20, [16, 16]), (33, [40, 12]), (17, [64, 65]), (50, [1, 50]))
    ),
]


@pytest.mark.parametrize(
    "fields",
    [
        *({**size, "resample": 2} for size in SIDES),
        *({**size, "resample": resample} for size in SIDES[2:4] for resample in (0, 1, 3, 4, 5)),
        {"do_normalize": False},
        {"do_rescale": False},
        {"do_rescale": False, "do_normalize": False},
        {"do_resize": False, "do_center_crop": True, "crop_size": 31},
        {"rescale_factor": 1 / 127.5, "image_mean": (1.0, 0.9, 1.1), "image_std": (0.3, 1.0, 2.0)},
        {"image_mean": (0.485, 0.456, 0.406), "image_std": (0.229, 0.224, 0.225), "size": [19, 23]},
        {"image_mean": 0.25, "image_std": 0.75},
        {"do_convert_rgb": True},
    ],
)
def test_pixels_are_the_reference_s(fields: dict[str, Any], tmp_path):
    assert_equal(ImageConfig.model_validate({"size": 25, **fields}), [noise(*size) for size in SIZES], tmp_path)


def test_a_picture_is_upscaled_and_kept_in_proportion(tmp_path):
    config = ImageConfig(size=ShortestEdge(shortest_edge=47))
    assert config.output is None
    for picture in (noise(10, 31), noise(31, 10), noise(33, 34)):
        assert_equal(config, [picture], tmp_path)


# --- files and modes ---


def palette() -> Image.Image:
    picture = noise(20, 30).quantize(16)
    picture.info["transparency"] = bytes(range(0, 160, 10))
    return picture


MODES = {
    "rgb": noise(20, 30),
    "grey": noise(20, 30, 1),
    "one bit": noise(20, 30, 1).convert("1"),
    "grey and alpha": noise(20, 30, 4).convert("LA"),
    "rgba": noise(20, 30, 4),
    "palette": noise(20, 30).quantize(16),
    "transparent palette": palette(),
    "cmyk": noise(20, 30).convert("CMYK"),
}


@pytest.mark.filterwarnings("ignore:Palette images with Transparency")
@pytest.mark.parametrize("on_white", [False, True])
@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        *((mode, "webp") for mode in MODES),
        *((mode, "png") for mode in MODES if mode != "cmyk"),
        *((mode, "jpeg") for mode in ("rgb", "grey", "cmyk")),
    ],
)
def test_files(mode: str, kind: str, on_white: bool, tmp_path):
    picture = MODES[mode]
    path = tmp_path / f"picture.{kind}"
    picture.save(path)
    config = ImageConfig(size=PixelSize(height=16, width=17), do_convert_rgb=on_white)
    assert_equal(config, [str(path)], tmp_path / "reference")
    np.testing.assert_array_equal(ImageProcessor(config)([path]), ImageProcessor(config)([str(path)]))
    if on_white:
        assert_equal(config, [picture], tmp_path / "reference")


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation(orientation: int, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = orientation
    config = ImageConfig(size=ShortestEdge(shortest_edge=16))
    for kind in ("jpeg", "png", "webp"):
        path = tmp_path / f"picture.{kind}"
        noise(20, 30).save(path, exif=exif)
        assert_equal(config, [str(path)], tmp_path / "reference")
    assert ImageProcessor(config)([path]).shape == ((1, 3, 16, 24) if orientation < 5 else (1, 3, 24, 16))


def test_arrays(tmp_path):
    config = ImageConfig(size=PixelSize(height=16, width=17), do_convert_rgb=True)
    rgb, rgba = np.asarray(noise(20, 30)), np.asarray(noise(20, 30, 4))
    grey = np.asarray(noise(20, 30, 1))
    assert_equal(config, [rgb, rgb.transpose(2, 0, 1), rgba, rgba.transpose(2, 0, 1), grey[None]], tmp_path)
    processor = ImageProcessor(config)
    np.testing.assert_array_equal(processor([grey]), processor([grey[..., None].astype(np.int64)]))
    np.testing.assert_array_equal(processor([rgb]), processor([Image.fromarray(rgb)]))


# --- documents ---

OLD: dict[str, JsonValue] = {
    "do_normalize": True,
    "do_resize": True,
    "feature_extractor_type": "ViTFeatureExtractor",
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "resample": 2,
    "size": 224,
}


def test_a_document_that_the_reference_wrote(tmp_path):
    from transformers import DeiTImageProcessorPil, ViTImageProcessorPil

    for processor in (
        ViTImageProcessorPil(size={"height": 30, "width": 31}, resample=1, do_convert_rgb=True),
        DeiTImageProcessorPil(size=40, crop_size=30, image_mean=[0.1, 0.2, 0.3]),
    ):
        processor.save_pretrained(tmp_path)
        document = json.loads((tmp_path / "preprocessor_config.json").read_text())
        config = ImageConfig.of(document, where="p.json")
        pictures = [noise(*size) for size in SIZES]
        expected = np.stack([np.asarray(processor(picture)["pixel_values"][0]) for picture in pictures])
        np.testing.assert_array_equal(ImageProcessor(config)(pictures), expected)


@pytest.mark.parametrize(
    ("document", "config"),
    [
        (OLD, ImageConfig()),
        ({"size": None, "do_pad": None, "crop_pct": None, "data_format": "channels_first"}, ImageConfig()),
        ({"size": 9, "default_to_square": False}, ImageConfig(size=ShortestEdge(shortest_edge=9))),
        (
            {"do_center_crop": True, "crop_size": [3, 4]},
            ImageConfig(do_center_crop=True, crop_size=PixelSize(height=3, width=4)),
        ),
        (
            {"image_mean": 0.25, "image_std": [0.5], "do_rescale": False, "resample": 0, "do_convert_rgb": True},
            ImageConfig(image_mean=0.25, image_std=(0.5,), do_rescale=False, resample=0, do_convert_rgb=True),
        ),
    ],
)
def test_documents_go_there_and_back(document: dict[str, JsonValue], config: ImageConfig):
    assert ImageConfig.of(document, where="p.json") == config
    written = json.loads(json.dumps(config.to_document() | {"image_processor_type": KIND}))
    assert ImageConfig.of(written, where="p.json") == config


def test_a_model_type_is_enough_for_the_reference(tmp_path):
    from transformers import AutoImageProcessor

    put(tmp_path / "config.json", json.dumps({"model_type": "vit"}))
    config = ImageConfig(size=PixelSize(height=20, width=21))
    put(tmp_path / "preprocessor_config.json", json.dumps(config.to_document()))
    picture = noise(30, 40)
    expected = AutoImageProcessor.from_pretrained(tmp_path)(picture)["pixel_values"][0]
    np.testing.assert_array_equal(ImageProcessor(config)([picture])[0], expected)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"crop_pct": 0.9}, "p.json:crop_pct: expected no such field, got 0.9"),
        ({"auto_map": {"AutoImageProcessor": "x.Y"}}, "p.json:auto_map: expected no such field"),
        ({"do_pad": True}, "p.json:do_pad: expected False, got True"),
        ({"data_format": "channels_last"}, "p.json:data_format: expected 'channels_first'"),
        ({"do_reduce_labels": True}, "p.json:do_reduce_labels: expected False"),
        (
            {"size": {"shortest_edge": 3, "longest_edge": 9}},
            "p.json: size of shortest_edge and longest_edge needs patch_size",
        ),
        ({"size": 0}, "p.json:size: expected height and width"),
        ({"crop_size": {"shortest_edge": 3}}, "p.json:crop_size: expected height and width"),
        ({"do_center_crop": True}, "p.json: do_center_crop needs crop_size"),
        ({"resample": 6}, "p.json:resample: expected one of Pillow's codes 0 to 5, got 6"),
        ({"resample": "bicubic"}, "p.json:resample: expected one of Pillow's codes"),
        ({"image_mean": []}, "p.json:image_mean: expected a number, or one a channel"),
        ({"image_mean": [0.5, float("nan"), 0.5]}, "p.json:image_mean"),
        ({"image_std": [0.5, 0.5]}, "p.json: image_mean has 3 values, image_std 2"),
        ({"image_std": [0.5, 0, 0.5]}, "p.json: image_std=(0.5, 0.0, 0.5) must be positive"),
        ({"rescale_factor": -1}, "p.json:rescale_factor: expected greater than 0"),
        ({"do_resize": "yes"}, "p.json:do_resize: expected a valid boolean, got 'yes'"),
    ],
)
def test_documents_refused(fields: dict[str, JsonValue], expected: str):
    with pytest.raises(UserError) as caught:
        ImageConfig.of(OLD | fields, where="p.json")
    assert str(caught.value).startswith(expected)
    assert "\n" not in str(caught.value)


# --- what cannot be read ---


def line_of(pictures: Any, config: ImageConfig | None = None) -> str:
    with pytest.raises(UserError) as caught:
        ImageProcessor(config or ImageConfig(size=PixelSize(height=8, width=8)))(pictures)
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 500
    return line


@pytest.mark.parametrize("kind", ["png", "jpeg", "webp"])
def test_a_file_cut_short_names_itself(kind: str, tmp_path):
    path = tmp_path / f"picture.{kind}"
    noise(64, 64).save(path)
    whole = path.read_bytes()
    for length in (len(whole) // 2, len(whole) // 10, 30, 12, 3, 0):
        put(path, whole[:length])
        assert line_of([noise(4, 4), str(path)]).startswith(f"{path}: expected a")


@pytest.mark.parametrize("kind", ["png", "webp"])
def test_a_file_of_several_frames_is_refused(kind: str, tmp_path):
    path = tmp_path / f"picture.{kind}"
    noise(8, 8).save(path, save_all=True, append_images=[noise(8, 8, seed=1)])
    assert line_of([path]).startswith(f"{path}: expected a picture of one frame, got 2 frames; save one")


def test_the_content_of_a_file_is_read_as_the_file_is(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    path, processor = tmp_path / "a.jpeg", ImageProcessor(ImageConfig(size=PixelSize(height=8, width=8)))
    noise(20, 30).convert("CMYK").save(path, exif=exif)
    assert (processor([path.read_bytes()]) == processor([path])).all()
    assert line_of([b"abc"]) == "images[0]: expected a PNG, JPEG or WebP image, got something else"


def test_flipped_bytes_never_show_a_traceback(tmp_path):
    rng = np.random.default_rng(0)
    processor = ImageProcessor(ImageConfig(size=PixelSize(height=8, width=8)))
    for kind in ("png", "jpeg", "webp"):
        path = tmp_path / f"picture.{kind}"
        noise(32, 32).save(path)
        whole = np.frombuffer(path.read_bytes(), np.uint8)
        for _ in range(100):
            broken = whole.copy()
            broken[rng.integers(0, min(len(whole), 400), 3)] = rng.integers(0, 256, 3)
            put(path, broken.tobytes())
            lines = []
            try:
                processor([path])
            except UserError as error:
                lines.append(str(error))
            assert all(line.startswith(f"{path}: expected") and "\n" not in line for line in lines)


def test_other_files_name_themselves(tmp_path):
    text, gif, deep = tmp_path / "a.png", tmp_path / "b.png", tmp_path / "c.png"
    put(text, "no image")
    noise(4, 4).save(gif, format="GIF")
    Image.fromarray(np.arange(16, dtype=np.uint16).reshape(4, 4)).save(deep)
    for path, expected in {
        text: "a PNG, JPEG or WebP image, got something else",
        gif: "a PNG, JPEG or WebP image, got something else",
        deep: "8 bits a channel, got mode I;16",
        tmp_path / "none.png": "an image file, got No such",
        tmp_path: "an image file, got a folder",
    }.items():
        assert line_of([path]).startswith(f"{path}: expected {expected}")
    assert line_of(["a\0b"]).startswith("a?b: expected an image file, got")


@pytest.mark.parametrize(
    ("pictures", "expected"),
    [
        *((none, "images: expected a list") for none in ([], "a.png", noise(4, 4), np.zeros((4, 4), np.uint8))),
        ([3], "images[0]: expected a path, an image or an array, got int"),
        ([noise(4, 4), Image.new("RGB", (0, 0))], "images[1]: expected at least one pixel"),
        ([np.zeros((0, 4), np.uint8)], "images[0]: expected at least one pixel"),
        *(([np.zeros(shape, np.uint8)], "images[0]: expected y x, y x c or c y x") for shape in ((5, 4, 2), ())),
        *(([np.full((4, 4), value)], "images[0]: expected whole numbers from 0 to 255") for value in (0.5, 256)),
    ],
)
def test_other_values_say_what_was_expected(pictures: Any, expected: str):
    assert line_of(pictures).startswith(expected)


def test_pictures_of_two_sizes_are_refused():
    assert line_of([noise(4, 5), noise(5, 4)], ImageConfig(do_resize=False)).startswith("images: expected one size")


def test_channels_must_agree():
    with pytest.raises(UserError, match=r"preprocessor:image_mean: expected 1 values, got 3"):
        ImageProcessor(ImageConfig(), n_channels=1)
    with pytest.raises(UserError, match="expected 1 or 3 channels, got 2"):
        ImageProcessor(ImageConfig(image_mean=(0.5, 0.5), image_std=0.5))
    with pytest.raises(UserError, match="do_convert_rgb: expected false for one channel"):
        ImageProcessor(ImageConfig(image_mean=0.5, image_std=0.5, do_convert_rgb=True), n_channels=1)
    scalar = ImageConfig(image_mean=0.5, image_std=0.5, size=PixelSize(height=4, width=4))
    assert ImageProcessor(scalar, n_channels=1)([noise(8, 8)]).shape == (1, 1, 4, 4)


# --- bombs ---


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(10_000_000), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def jpeg(width: int, height: int) -> bytes:
    buffer = io.BytesIO()
    noise(16, 16).save(buffer, "JPEG")
    content = buffer.getvalue()
    at = content.index(b"\xff\xc0") + 5
    return content[:at] + struct.pack(">HH", height, width) + content[at + 4 :]


def webp(width: int, height: int) -> bytes:
    buffer = io.BytesIO()
    noise(16, 16).save(buffer, "WEBP", lossless=True)
    content = buffer.getvalue()
    at = content.index(b"VP8L") + 9
    return content[:at] + struct.pack("<I", (width - 1) | ((height - 1) << 14)) + content[at + 4 :]


MEASURED = """
import resource, sys
from clearhead.data.images import ImageConfig, ImageProcessor
from clearhead.errors import UserError
import PIL.Image; PIL.Image.init()
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before, line = peak(), "no error"
config = ImageConfig.model_validate_json(sys.argv[2])
try:
    ImageProcessor(config)([sys.argv[1]])
except UserError as error:
    line = str(error)
print((peak() - before) / 1024, line, sep="|")
"""


def refused(path: Path, config: ImageConfig) -> str:
    command = [sys.executable, "-c", MEASURED, str(path), config.model_dump_json()]
    done = processes.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    megabytes, line = done.stdout.strip().split("|")
    assert float(megabytes) < 200
    assert line.startswith(f"{path}")
    return line


@pytest.mark.skipif(sys.platform == "win32", reason="measures memory as POSIX does")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("png", png(9000, 8000)),
        ("most.png", png(2**31 - 1, 2**31 - 1)),
        ("jpeg", jpeg(65_500, 65_500)),
        ("webp", webp(16_384, 16_384)),
    ],
)
def test_a_bomb_is_refused_before_it_is_decoded(name: str, content: bytes, tmp_path):
    path = tmp_path / name
    put(path, content)
    assert "pixels, got" in refused(path, ImageConfig())


@pytest.mark.skipif(sys.platform == "win32", reason="measures memory as POSIX does")
def test_a_long_strip_does_not_grow_without_bound(tmp_path):
    Image.new("RGB", (60_000, 1)).save(tmp_path / "strip.png")
    line = refused(tmp_path / "strip.png", ImageConfig(size=ShortestEdge(shortest_edge=224)))
    assert "strip.png resized: expected at most" in line


def test_a_size_beyond_the_limit_is_refused_at_once():
    huge = PixelSize(height=10**9, width=10**9)
    for config in (ImageConfig(size=huge), ImageConfig(do_center_crop=True, crop_size=huge)):
        with pytest.raises(UserError, match=r"preprocessor: expected at most 67108864 pixels, got 1000000000 x 1000"):
            ImageProcessor(config)


def test_an_absent_pillow_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    assert line_of(["a.png"]) == "images: expected the package pillow, got none; try pip install 'clearhead[data]'"
