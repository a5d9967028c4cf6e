"""Pictures with labels: reads them from folders, idx files, arrays and tables. Imports neither torch nor Pillow."""

import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.typing import NDArray

from clearhead.brief import brief
from clearhead.data.files import Unpacked, UnpackedFrames, nearest, opened
from clearhead.data.labelled import MISSING, written
from clearhead.data.pictures import about
from clearhead.data.sources import cells_of
from clearhead.errors import UserError, reason
from clearhead.recipe.data import ArrayFile, Column, HubDataset, IdxFiles, ImageFolder, Source, Table

if TYPE_CHECKING:
    from clearhead.data.pictures import Picture

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
PARTS = {"train": ("train",), "valid": ("valid", "val", "validation"), "test": ("test",)}
"""The names of folders that hold one split each."""
IDX_BYTES = 0x08
"""The code of unsigned bytes in the magic number of an idx file."""
MAX_ARRAY = 1 << 36
"""Most bytes of an array of pictures."""


@dataclass(frozen=True, slots=True)
class LabelledPicture:
    """A picture and its class."""

    __repr__ = brief

    picture: "Picture"
    """A path, or whole numbers y x or y x c."""
    label: str
    where: str
    """Its path, or its file and its index from 0: `digits.npz[17]`."""


def read_pictures(source: Source, label: Column) -> list[LabelledPicture]:
    """Every picture of a source, in order. Files are named, and not opened yet.

    Raises UserError, which names the file, for a label that is missing, an empty class, and counts that differ.
    """
    match source:
        case ImageFolder():
            found = [*_of_folder(source.path)]
        case IdxFiles():
            pixels, labels = idx(source.images, 3), idx(source.labels, 1)
            found = _paired(pixels, labels, source.images, source.labels)
        case ArrayFile():
            pixels, labels = _array(source.path, source.images), _array(source.path, source.labels)
            if pixels.ndim not in (3, 4) or labels.ndim != 1:
                raise UserError(
                    f"{source.path}: expected pictures n y x (c) and labels n, got {_shape(pixels)} and"
                    f" {_shape(labels)}; try other names with data.train.images and data.train.labels"
                )
            found = _paired(pixels, labels, source.path, source.path)
        case Table() | HubDataset() if source.text is not None:
            found = [*_of_rows(source, source.text, label)]
        case _:
            raise UserError(f'{source.kind}: expected pictures and their labels, got texts; try kind = "image_folder"')
    if not found:
        raise UserError(f"{_name(source)}: expected pictures, got none; give another file")
    return found


def _name(source: Source) -> str:
    return ", ".join(map(str, source.files)) or source.kind


# --- folders and tables -----------------------------------------------------------------------------------------------


def classes_of(folder: Path) -> list[Path]:
    """The folders in a folder, apart from hidden ones."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def is_image_folder(path: Path) -> bool:
    """Whether a path is that of a folder that holds pictures in a folder for each class."""
    return path.is_dir() and any(_is_picture(file) for one in classes_of(path) for file in one.iterdir())


def splits_in(folder: Path) -> dict[str, Path]:
    """The folders of the splits in a folder of pictures: `train/CLASS` and others; the folder itself without them."""
    found = {split: folder / name for split, names in PARTS.items() for name in names if is_image_folder(folder / name)}
    return found if "train" in found else {"train": folder}


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def _of_folder(folder: Path) -> Iterator[LabelledPicture]:
    if not folder.is_dir():
        raise UserError(f"{folder}: expected a folder with a folder of pictures for each class, found none")
    classes = classes_of(folder)
    if loose := next((path for path in sorted(folder.iterdir()) if _is_picture(path)), None):
        raise UserError(f"{loose}: expected pictures in a folder that is named for their class; move it into one")
    if len(classes) < 2:
        raise UserError(f"{folder}: expected a folder for each class, at least 2, got {len(classes)}; add them")
    for one in classes:
        files = [path for path in sorted(one.iterdir()) if not path.name.startswith(".")]
        if not files:
            raise UserError(f"{one}: expected pictures of the class {one.name}, got an empty folder; add some")
        for path in files:
            if not _is_picture(path):
                raise UserError(f"{path}: expected {', '.join(SUFFIXES)}, got another file; move it elsewhere")
            yield LabelledPicture(path, one.name, str(path))


def _of_rows(source: Table | HubDataset, column: Column, label: Column) -> Iterator[LabelledPicture]:
    """The pictures of a table, whose paths begin at the table's folder."""
    table = source.path if isinstance(source, Table) else None
    folder = table.parent if isinstance(table, Path) else Path()
    for where, (name, cell) in cells_of(source, [column, label]):
        path, said = written(name), written(cell)
        if not path or said.lower() in MISSING:
            what = f"a picture's path in column {column!r}" if not path else f"a label in column {label!r}"
            raise UserError(f"{where}: expected {what}, got {said if path else 'none'}; fill it in or delete the row")
        if not (folder / path).is_file():
            raise UserError(f"{where}: expected a picture's path from {folder}, got {path}, where no file is")
        yield LabelledPicture(folder / path, said, f"{where}: {path}")


# --- arrays -----------------------------------------------------------------------------------------------------------


def _paired(pixels: NDArray[np.generic], labels: NDArray[np.generic], at: Path, where: Path) -> list[LabelledPicture]:
    if len(pixels) != len(labels):
        raise UserError(
            f"{where}: expected a label for each of the {len(pixels):,} pictures of {at.name}, got {len(labels):,};"
            " give the files that belong together"
        )
    names: list[object] = labels.tolist()
    found = [written(name) for name in names]
    if missing := [i for i, name in enumerate(found) if name.lower() in MISSING]:
        raise UserError(f"{where}[{missing[0]}]: expected a label, got {names[missing[0]]!r}; fill it in")
    return [
        LabelledPicture(picture, name, f"{at}[{i}]")
        for i, (picture, name) in enumerate(zip(pixels, found, strict=True))
    ]


def idx(path: Path, n_axes: int) -> NDArray[np.uint8]:
    """The bytes of an idx file with so many axes: 00 00 08 n, n sizes of 4 bytes, the values   (LeCun et al. 1998).

    Raises UserError for any other file, and for one with too few or too many bytes.
    """
    with opened(path) as file:
        return _idx(file, path, n_axes)


def _idx(file: BinaryIO | Unpacked | UnpackedFrames, path: Path, n_axes: int) -> NDArray[np.uint8]:
    head = file.read(4 + 4 * n_axes)
    if head[:4] != bytes((0, 0, IDX_BYTES, n_axes)) or len(head) < 4 + 4 * n_axes:
        what = "pictures" if n_axes > 1 else "labels"
        raise UserError(f"{path}: expected {what} in an idx file (00 00 08 0{n_axes}), got {head[:4].hex(' ')}")
    shape = tuple(int(size) for size in np.frombuffer(head[4:], ">u4"))
    size = int(np.prod(shape, dtype=object))
    content = file.read(min(size, MAX_ARRAY) + 1)
    if len(content) != size:
        got = f"{len(content):,}" if len(content) < size else "more"
        raise UserError(f"{path}: expected {size:,} bytes after its sizes, got {got}; try fetching it again")
    return np.frombuffer(content, np.uint8).reshape(shape)


def _array(path: Path, name: str) -> NDArray[np.generic]:
    """An array of an npz file. Objects, which only unpickling makes, are refused."""
    with opened(path) as raw:
        if isinstance(raw, UnpackedFrames):
            raise UserError(f"{path}: expected an npz file, got Zstandard; unpack it first")
        try:
            with zipfile.ZipFile(raw) as file:
                return _member(file, name, path)
        except (zipfile.BadZipFile, ValueError, EOFError) as error:
            if isinstance(error, UserError):
                raise
            raise UserError(f"{path}: expected arrays of numpy.savez, got {reason(error)}; write it again") from None


def _member(file: zipfile.ZipFile, name: str, path: Path) -> NDArray[np.generic]:
    known = [member.removesuffix(".npy") for member in file.namelist()]
    if name not in known:
        raise UserError(f"{path}: expected an array {name!r}, got none{nearest(name, known)}")
    if file.getinfo(f"{name}.npy").file_size > MAX_ARRAY:
        raise UserError(f"{path}:{name}: expected at most {MAX_ARRAY:,} bytes, got more; try several files")
    with file.open(f"{name}.npy") as member:
        return np.lib.format.read_array(member, allow_pickle=False)


def _shape(array: NDArray[np.generic]) -> str:
    return " x ".join(map(str, array.shape)) or "a number"


def channels_of(pictures: Sequence[LabelledPicture]) -> int:
    """1 if all pictures are grey, otherwise 3. Raises UserError, which names the file, for one that is no picture."""
    return 1 if all(_shape_of(one)[2] for one in pictures) else 3


def size_of(pictures: Sequence[LabelledPicture]) -> tuple[int, int]:
    """The height and width of all pictures. Raises UserError, which names it, for one of another size."""
    first = _shape_of(pictures[0])[:2]
    for one in pictures:
        height, width, _ = _shape_of(one)
        if (height, width) != first:
            raise UserError(
                f"{one.where}: expected {first[0]} x {first[1]} pixels, the size of the first picture, got"
                f" {height} x {width}; try --size {min(first)}, which resizes all"
            )
    return first


def _shape_of(one: LabelledPicture) -> tuple[int, int, bool]:
    """The height and width of a picture, and whether it is grey."""
    if isinstance(one.picture, Path):
        return about(one.picture)
    array = np.asarray(one.picture)
    is_first = array.ndim == 3 and array.shape[0] in (1, 3, 4)
    height, width = array.shape[1:] if is_first else array.shape[:2]
    return height, width, array.ndim == 2 or array.shape[0 if is_first else -1] == 1
