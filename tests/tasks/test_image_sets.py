"""Pictures with labels: every source read alike, and every mistake told with its file."""

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pydantic import TypeAdapter

from clearhead.data.bad_rows import BadRows, RowErrors
from clearhead.data.containers import contents_of
from clearhead.data.images import ImageConfig, ImageProcessor, PixelSize
from clearhead.errors import UserError
from clearhead.recipe.data import Source
from clearhead.tasks.images.data import (
    Augmentation,
    Pictures,
    channels_of,
    draws_of,
    idx,
    read_pictures,
    size_of,
    with_held_out,
)
from tests.files import put

N = 6
PIXELS = np.random.default_rng(0).integers(0, 256, (N, 7, 7), dtype=np.uint8)
LABELS = np.array([0, 1, 0, 1, 0, 1], dtype=np.uint8)
SOURCE: TypeAdapter[Source] = TypeAdapter(Source)


def write_idx(path: Path, array: np.ndarray) -> None:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    put(path, gzip.compress(bytes((0, 0, 8, array.ndim)) + sizes + array.tobytes()))


def write_folder(folder: Path) -> None:
    for i, (pixels, label) in enumerate(zip(PIXELS, LABELS, strict=True)):
        (folder / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / str(label) / f"{i}.png")


def write_all(folder: Path) -> dict[str, dict[str, Any]]:
    """The same pictures in each form, and the source that reads it."""
    write_folder(folder / "pictures")
    write_idx(folder / "images.gz", PIXELS)
    write_idx(folder / "labels.gz", LABELS)
    np.savez(folder / "both.npz", x=PIXELS[..., None], y=LABELS)
    rows = [f"pictures/{label}/{i}.png,{label}" for i, label in enumerate(LABELS)]
    put(folder / "table.csv", ["file,kind", *rows])
    return {
        "folder": {"kind": "image_folder", "path": "pictures"},
        "idx": {"kind": "idx", "images": "images.gz", "labels": "labels.gz"},
        "npz": {"kind": "npz", "path": "both.npz", "images": "x", "labels": "y"},
        "table": {"kind": "table", "path": "table.csv", "header": True, "text": "file"},
    }


def read(source: dict[str, Any], folder: Path) -> list[Any]:
    return read_pictures(SOURCE.validate_python(source).under(folder), "kind")


def processor() -> ImageProcessor:
    return ImageProcessor(ImageConfig(size=PixelSize(height=7, width=7), image_mean=(0.0,), image_std=(1.0,)))


def encoded(source: dict[str, Any], folder: Path) -> Pictures:
    """The pictures of a source of one size, as a task reads them."""
    found = read(source, folder)
    channels_of(found)
    size_of(found)
    return Pictures.of(found, processor(), in_memory=True)


@pytest.mark.parametrize("in_memory", [True, False])
def test_every_source_gives_the_same_pictures(in_memory: bool, tmp_path):
    expected = {(pixels.tobytes(), str(label)) for pixels, label in zip(PIXELS, LABELS, strict=True)}
    for source in write_all(tmp_path).values():
        found = read(source, tmp_path)
        assert (channels_of(found), size_of(found)) == (1, (7, 7))
        pictures = Pictures.of(found, processor(), in_memory=in_memory)
        assert pictures.is_in_memory == in_memory
        assert pictures.read([2, 0]).shape == (2, 1, 7, 7)
        labels = [one.labels[0] for one in pictures.examples]
        assert {
            (pixels.tobytes(), label) for pixels, label in zip(pictures.read(range(N)), labels, strict=True)
        } == expected


def test_the_statistics_are_those_of_the_pixels(tmp_path):
    pictures = Pictures.of(read(write_all(tmp_path)["idx"], tmp_path), processor(), in_memory=True)
    assert np.ravel(pictures.statistics()) == pytest.approx([PIXELS.mean() / 255, PIXELS.std() / 255], abs=1e-4)


def test_splits_in_folders_are_found(tmp_path):
    def found(folder: str) -> dict[str, str]:
        contents = contents_of(tmp_path / folder)
        assert contents
        assert contents.kind == "image_folder"
        return {split: source["path"].removeprefix(f"{tmp_path}/") for split, source in contents.sources.items()}

    write_folder(tmp_path / "one")
    assert found("one") == {"train": "one"}
    for name in ("train", "val"):
        write_folder(tmp_path / "all" / name)
    assert found("all") == {"train": "all/train", "valid": "all/val"}


def test_files_beside_the_pictures_are_left_out_and_broken_ones_told_at_once(tmp_path):
    write_folder(tmp_path / "d")
    one, two = (path for path in sorted((tmp_path / "d").iterdir()) if path.is_dir())
    for name in ("Thumbs.db", ".DS_Store", "desktop.ini", "about.txt"):
        put(one / name, b"?")
    n = len(read({"kind": "image_folder", "path": "d"}, tmp_path))
    put(one / "broken.png", b"<html>")
    put(two / "empty.png", b"")
    contents = contents_of(tmp_path / "d")
    assert contents
    assert [one.value for one in contents.decisions if one.what == "left out"] == ["1 files: about.txt"]
    with pytest.raises(BadRows) as error:
        read({"kind": "image_folder", "path": "d"}, tmp_path)
    assert [str(row).rpartition("/")[2].partition(":")[0] for row in error.value.rows] == ["broken.png", "empty.png"]
    errors = RowErrors(skip=True)
    cut_picture(min(one.glob("[0-9].png")))
    found = read_pictures(SOURCE.validate_python({"kind": "image_folder", "path": str(tmp_path / "d")}), "kind", errors)
    pictures = Pictures.of(found, processor(), errors=errors)
    assert (len(pictures.examples), len(errors.rows)) == (n - 1, 3)


def test_equal_pictures_are_never_in_two_parts(tmp_path):
    many = np.concatenate([PIXELS[:5]] * 8)
    np.savez(tmp_path / "many.npz", images=many, labels=np.arange(40) % 5 % 2)
    pictures = Pictures.of(read({"kind": "npz", "path": "many.npz"}, tmp_path), processor(), in_memory=True)
    found = with_held_out({"train": pictures}, 0.3)
    parts = {name: {one.texts for one in part.examples} for name, part in found.items()}
    assert all(parts.values())
    assert not parts["train"] & parts["valid"]
    for name, part in found.items():
        assert len(part.read(range(len(part.examples)))) == len(part.examples)
        assert {one.labels[0] for one in part.examples} == {"0", "1"} or name != "train"


# --- random changes ---------------------------------------------------------------------------------------------------


def test_a_picture_moves_by_at_most_the_shift_and_its_edge_fills_the_gap():
    pixels = np.arange(2 * 9 * 9, dtype=np.uint8).reshape(1, 2, 9, 9)
    padded = np.pad(pixels, ((0, 0), (0, 0), (2, 2), (2, 2)), mode="edge")
    expected = {padded[:, :, y : y + 9, x : x + 9].tobytes() for y in range(5) for x in range(5)}
    draws = draws_of(3, 400)
    found = {Augmentation(shift=2).of(pixels, draws[i : i + 1]).tobytes() for i in range(400)}
    assert found == expected


def test_half_of_the_pictures_are_mirrored():
    pixels = np.repeat(np.arange(16, dtype=np.uint8).reshape(1, 1, 4, 4), 200, axis=0)
    found = Augmentation(flip=True).of(pixels, draws_of(0, 200))
    is_flipped = (found == pixels[..., ::-1]).all((1, 2, 3))
    assert ((found == pixels).all((1, 2, 3)) != is_flipped).all()
    assert 70 < is_flipped.sum() < 130


# --- mistakes ---------------------------------------------------------------------------------------------------------


def cut_picture(path: Path) -> None:
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (7, 7), dtype=np.uint8)).save(path)
    put(path, path.read_bytes()[:50])


@pytest.mark.parametrize(
    ("form", "spoil", "told"),
    [
        (
            "folder",
            lambda at: cut_picture(at / "pictures/0/9.png"),
            "pictures/0/9.png: expected a whole image, got",
        ),
        (
            "folder",
            lambda at: (at / "pictures/2").mkdir(),
            "pictures/2: expected pictures of the class 2, got an empty folder",
        ),
        (
            "folder",
            lambda at: Image.fromarray(np.zeros((5, 6), np.uint8)).save(at / "pictures/1/9.png"),
            "pictures/1/9.png: expected 7 x 7 pixels, the size of the first picture, got 5 x 6",
        ),
        (
            "folder",
            lambda at: Image.fromarray(PIXELS[0]).save(at / "pictures/9.png"),
            "pictures/9.png: expected pictures in a folder that is named for their class",
        ),
        (
            "idx",
            lambda at: write_idx(at / "labels.gz", LABELS[:5]),
            "labels.gz: expected a label for each of the 6 pictures of images.gz, got 5",
        ),
        (
            "idx",
            lambda at: write_idx(at / "labels.gz", PIXELS),
            "labels.gz: expected labels in an idx file (00 00 08 01), got 00 00 08 03",
        ),
        (
            "idx",
            lambda at: (at / "images.gz").write_bytes(gzip.decompress((at / "images.gz").read_bytes())[:-3]),
            "images.gz: expected 294 bytes after its sizes, got 291",
        ),
        (
            "npz",
            lambda at: np.savez(at / "both.npz", x=PIXELS, y=np.array([{}] * N, dtype=object), allow_pickle=True),
            "both.npz: expected arrays of numpy.savez, got",
        ),
        (
            "npz",
            lambda at: np.savez(at / "both.npz", xs=PIXELS, y=LABELS),
            "both.npz: expected an array 'x', got none; try xs",
        ),
        (
            "npz",
            lambda at: (at / "both.npz").write_text("no arrays"),
            "both.npz: expected arrays of numpy.savez, got",
        ),
        (
            "npz",
            lambda at: np.savez(at / "both.npz", x=PIXELS / 255, y=LABELS),
            "both.npz[0]: expected whole numbers from 0 to 255, got float64",
        ),
        (
            "table",
            lambda at: (at / "table.csv").write_text("file,kind\npictures/0/0.png,a\npictures/0/7.png,b\n"),
            "table.csv:3: expected a picture's path from",
        ),
        (
            "table",
            lambda at: (at / "table.csv").write_text("file,kind\npictures/0/0.png,a\npictures/0/2.png,nan\n"),
            "table.csv:3: expected a label in column 'kind', got nan",
        ),
    ],
)
def test_a_mistake_is_told_with_its_file(form: str, spoil: Callable[[Path], object], told: str, tmp_path):
    source = write_all(tmp_path)[form]
    spoil(tmp_path)
    with pytest.raises(UserError) as error:
        encoded(source, tmp_path)
    assert told in str(error.value)


def test_labels_that_training_does_not_have_are_told(tmp_path):
    pictures = Pictures.of(read(write_all(tmp_path)["folder"], tmp_path), processor(), in_memory=True)
    of_one = pictures.subset([one for one in pictures.examples if one.labels == ("0",)])
    other = replace(pictures, examples=[replace(pictures.examples[0], labels=("cat",))])
    with pytest.raises(
        UserError, match=r"0/0\.png: expected a label of the training data \(0, 1\), got cat; correct it"
    ):
        with_held_out({"train": pictures, "valid": other}, 0.1)
    with pytest.raises(UserError, match=r"^data\.train: expected at least 2 classes, got 0; add pictures of another"):
        with_held_out({"train": of_one, "valid": of_one}, 0.1)
    with pytest.raises(UserError, match=r"^data\.train: expected more pictures to hold some of each class out, got 6"):
        with_held_out({"train": pictures}, 0.1)


def test_idx_of_the_real_data(shared_data: Path):
    labels = idx(shared_data / "mnist/t10k-labels-idx1-ubyte.gz", 1)
    assert (labels[:5].tolist(), len(labels)) == ([7, 2, 1, 0, 4], 10_000)
