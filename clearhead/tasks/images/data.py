"""Pictures with labels: reads them from folders, idx files, arrays and tables; their splits. Imports no torch."""

import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeInt

from clearhead.brief import brief
from clearhead.config import Config
from clearhead.data.archives import is_junk
from clearhead.data.bad_rows import BadRow, RowErrors
from clearhead.data.containers import PICTURES
from clearhead.data.files import Unpacked, nearest, opened
from clearhead.data.images import ImageProcessor, about
from clearhead.data.sources import examples_of
from clearhead.data.splits import complete_splits, fingerprint
from clearhead.data.tables import MISSING, written
from clearhead.errors import UserError, reason
from clearhead.recipe.data import ArrayFile, Column, HeldOut, HubDataset, IdxFiles, ImageFolder, Source, Table
from clearhead.tasks.classification.data import LabelledText, check_splits, names_of

if TYPE_CHECKING:
    from clearhead.data.images import Picture

IDX_BYTES = 0x08
"""The code of unsigned bytes in the magic number of an idx file."""
Bytes = NDArray[np.uint8]
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


def read_pictures(source: Source, label: Column, errors: RowErrors | None = None) -> list[LabelledPicture]:
    """Every picture of a source, in order. Of a file, only its header is read.

    Adds files that are no pictures to `errors`; raises BadRows without it. Raises UserError, which names the file, for
    a label that is missing, an empty class, and counts that differ.
    """
    own = errors or RowErrors()
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
        name = ", ".join(map(str, source.files)) or source.kind
        raise UserError(f"{name}: expected pictures, got none; give another file")
    good = [one for one in found if _is_picture_at(one, own)]
    own.check(has_good=bool(good))
    return good


def _is_picture_at(one: LabelledPicture, errors: RowErrors) -> bool:
    try:
        _shape_of(one)
    except UserError as error:
        errors.rows.append(BadRow(str(error)))
        return False
    return True


# --- folders and tables -----------------------------------------------------------------------------------------------


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in PICTURES and not is_junk(path.name)


def _of_folder(folder: Path) -> Iterator[LabelledPicture]:
    if not folder.is_dir():
        raise UserError(f"{folder}: expected a folder with a folder of pictures for each class, found none")
    classes = sorted(path for path in folder.iterdir() if path.is_dir() and not is_junk(path.name))
    if loose := next((path for path in sorted(folder.iterdir()) if _is_picture(path)), None):
        raise UserError(f"{loose}: expected pictures in a folder that is named for their class; move it into one")
    if len(classes) < 2:
        raise UserError(f"{folder}: expected a folder for each class, at least 2, got {len(classes)}; add them")
    for one in classes:
        files = [path for path in sorted(one.rglob("*")) if _is_picture(path)]
        if not files:
            raise UserError(f"{one}: expected pictures of the class {one.name}, got an empty folder; add some")
        yield from (LabelledPicture(path, one.name, str(path)) for path in files)


def _of_rows(source: Table | HubDataset, column: Column, label: Column) -> Iterator[LabelledPicture]:
    """The pictures of a table, whose paths begin at the table's folder."""
    table = source.path if isinstance(source, Table) else None
    folder = table.parent if isinstance(table, Path) else Path()

    def make(where: str, cells: list[object]) -> LabelledPicture:
        path, said = map(written, cells)
        if not path or said.lower() in MISSING:
            what = f"a picture's path in column {column!r}" if not path else f"a label in column {label!r}"
            raise BadRow(f"{where}: expected {what}, got {said if path else 'none'}; fill it in or delete the row")
        if not (folder / path).is_file():
            raise BadRow(f"{where}: expected a picture's path from {folder}, got {path}, where no file is")
        return LabelledPicture(folder / path, said, f"{where}: {path}")

    return examples_of(source, [column, label], make)


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


def idx(path: Path, n_axes: int) -> Bytes:
    """The bytes of an idx file with so many axes: 00 00 08 n, n sizes of 4 bytes, the values   (LeCun et al. 1998).

    Raises UserError for any other file, and for one with too few or too many bytes.
    """
    with opened(path) as file:
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
        if isinstance(raw, Unpacked):
            raise UserError(f"{path}: expected an npz file, got a packed one; unpack it first")
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
    """1 if all pictures are grey, otherwise 3. Raises UserError, which names the file, if it is not a picture."""
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


IN_MEMORY_UP_TO = 1 << 30
"""Bytes of pixels that are kept in memory; more are read from their files again for each batch."""
BLOCK = 1024
PREPROCESSOR = "preprocessor_config.json"


@dataclass(frozen=True)
class Pictures:
    """Pictures of one size, and their labels."""

    __repr__ = brief

    examples: list[LabelledText]
    """Each with the hash of its pixels in place of a text, so that equal pictures are equal texts."""
    read: Callable[[Sequence[int]], Bytes]
    """Reads the pictures with these numbers, b c y x."""
    is_in_memory: bool
    patch_size: int | None = None
    """The side of a patch in pixels; None for that of `patch_for`."""

    @classmethod
    def of(
        cls,
        pictures: Sequence[LabelledPicture],
        processor: ImageProcessor,
        *,
        in_memory: bool | None = None,
        patch_size: int | None = None,
        errors: RowErrors | None = None,
    ) -> Self:
        """Reads every picture once. Keeps the pixels in memory unless `in_memory` is false; by default if they are few.

        Adds broken pictures to `errors`; raises BadRows without it.
        """
        kept: list[Bytes] = []
        examples: list[LabelledText] = []
        good: list[LabelledPicture] = []
        size, own = 0, errors or RowErrors()
        for one in pictures:
            try:
                pixels = processor.resized(one.picture, where=one.where)
            except UserError as error:
                own.rows.append(BadRow(str(error)))
                continue
            good.append(one)
            examples.append(LabelledText((sha256(pixels.tobytes()).hexdigest(),), (one.label,), one.where))
            size = size or pixels.size * len(pictures)
            if in_memory if in_memory is not None else size <= IN_MEMORY_UP_TO:
                kept.append(pixels)
        own.check(has_good=bool(good))
        if kept:
            together = np.stack(kept)
            return cls(examples, lambda rows: together[rows], True, patch_size)
        return cls(examples, lambda rows: processor.sized([good[i].picture for i in rows]), False, patch_size)

    @property
    def shape(self) -> tuple[int, ...]:
        """The channels, height and width of each picture."""
        return self.read([0]).shape[1:]

    @property
    def sizes(self) -> list[int]:
        """The patches of each picture."""
        _, height, width = self.shape
        return [height * width // (self.patch_size or patch_for(height)) ** 2] * len(self.examples)

    @property
    def fingerprint(self) -> str:
        """A hash of the pixels and labels in order."""
        return fingerprint(*([(*one.texts, *one.labels)] for one in self.examples))

    def subset(self, examples: Sequence[LabelledText]) -> Self:
        """These of the pictures."""
        numbers = {one.where: i for i, one in enumerate(self.examples)}
        return self.take([numbers[one.where] for one in examples])

    def take(self, rows: Sequence[int]) -> Self:
        """The pictures with these numbers."""

        def read(wanted: Sequence[int]) -> Bytes:
            return self.read([rows[i] for i in wanted])

        return replace(self, examples=[self.examples[i] for i in rows], read=read)

    def statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The mean and the standard deviation of each channel, with pixels from 0 to 1, to four digits."""
        n_channels = self.shape[0]
        counts = np.zeros((n_channels, 256))
        for start in range(0, len(self.examples), BLOCK):
            block = self.read(range(len(self.examples))[start : start + BLOCK])
            counts += [np.bincount(block[:, channel].ravel(), minlength=256) for channel in range(n_channels)]
        values, shares = np.arange(256) / 255, counts / counts.sum(1, keepdims=True)
        means = shares @ values
        deviations = np.sqrt((shares * (values - means[:, None]) ** 2).sum(1))
        return tuple(np.round(means, 4).tolist()), tuple(np.maximum(np.round(deviations, 4), 1e-4).tolist())


MOST_PATCHES = 8
"""Patches on a side, unless a recipe says how large a patch is."""


def patch_for(side: int) -> int:
    """The fewest pixels that cut a side into at most MOST_PATCHES equal parts.

    Raises UserError if only one part is possible.
    """
    found = next(size for size in range(-(-side // MOST_PATCHES), side + 1) if side % size == 0)
    if found == side and side > 1:
        raise UserError(f"patch_size: expected patches that divide {side} pixels, found none; try --size {side + 1}")
    return found


# --- splits -----------------------------------------------------------------------------------------------------------


def with_held_out(splits: Mapping[str, Pictures], share: HeldOut) -> dict[str, Pictures]:
    """The splits; without one for validation, this share of the training pictures is, and as much a test if there is
    none.

    Equal pictures are in one part, and each part has its share of every class. Raises UserError if there are too few,
    and for a class that training does not have.
    """
    given, what = {name: one.examples for name, one in splits.items()}, "pictures to hold some of each class out"
    found = {
        name: splits[name] if part is given.get(name) else splits["train"].subset(part)
        for name, part in complete_splits(given, share, expected=what).items()
    }
    names = names_of(found["train"].examples)
    if len(names) < 2:
        raise UserError(f"data.train: expected at least 2 classes, got {', '.join(names)}; add pictures of another")
    check_splits({split: pictures.examples for split, pictures in found.items()}, what="pictures")
    return found


# --- random changes ---------------------------------------------------------------------------------------------------


class Augmentation(Config):
    """Random changes of training pictures, other ones in each epoch: a function of (seed, epoch, picture)."""

    shift: NonNegativeInt = 0
    """Most pixels by which a picture moves up or down, and left or right. Its edge fills the gap."""
    flip: bool = False
    """Mirror half of the pictures, left to right."""

    def of(self, pixels: Bytes, draws: NDArray[np.float64]) -> Bytes:
        """b c y x -> b c y x, with three draws from 0 to 1 for each picture."""
        b, _, height, width = pixels.shape
        down, right = np.floor(draws[:, :2].T * (2 * self.shift + 1)).astype(np.int64) - self.shift
        rows = np.clip(np.arange(height) + down[:, None], 0, height - 1)
        columns = np.clip(np.arange(width) + right[:, None], 0, width - 1)
        if self.flip:
            columns = np.where(draws[:, 2:] < 0.5, columns, columns[:, ::-1])
        return pixels.transpose(0, 2, 3, 1)[
            np.arange(b)[:, None, None], rows[:, :, None], columns[:, None, :]
        ].transpose(0, 3, 1, 2)


@lru_cache(maxsize=2)
def draws_of(seed: int, n: int) -> NDArray[np.float64]:
    """n 3: the draws of an epoch; row i belongs to picture i."""
    return np.random.default_rng(seed).random((n, 3))
