"""Pictures as bytes of one size: their splits, random changes and report. Imports no torch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeInt

from clearhead.brief import brief
from clearhead.config import Config
from clearhead.data.image_sets import LabelledPicture
from clearhead.data.images import ImageConfig, ImageProcessor
from clearhead.data.labelled import LabelledText, check_known, complete_splits, names_of
from clearhead.data.picture_report import PictureReport
from clearhead.data.splits import fingerprint
from clearhead.errors import UserError
from clearhead.json_text import JsonObject
from clearhead.recipe.data import SPLITS, HeldOut

Bytes = NDArray[np.uint8]
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

    @classmethod
    def of(cls, pictures: Sequence[LabelledPicture], processor: ImageProcessor, *, in_memory: bool | None) -> Self:
        """Reads every picture once. Keeps the pixels in memory unless `in_memory` is false; by default if they are few.

        Raises UserError, which names it, for a file that is no picture.
        """
        kept: list[Bytes] = []
        examples: list[LabelledText] = []
        size = 0
        for one in pictures:
            pixels = processor.resized(one.picture, where=one.where)
            examples.append(LabelledText((sha256(pixels.tobytes()).hexdigest(),), (one.label,), one.where))
            size = size or pixels.size * len(pictures)
            if in_memory if in_memory is not None else size <= IN_MEMORY_UP_TO:
                kept.append(pixels)
        if kept:
            together = np.stack(kept)
            return cls(examples, lambda rows: together[rows], is_in_memory=True)
        return cls(examples, lambda rows: processor.sized([pictures[i].picture for i in rows]), is_in_memory=False)

    @property
    def fingerprint(self) -> str:
        """A hash of the pixels and labels in order."""
        return fingerprint(*([(*one.texts, *one.labels)] for one in self.examples))

    def subset(self, examples: Sequence[LabelledText]) -> "Pictures":
        """These of the pictures."""
        numbers = {one.where: i for i, one in enumerate(self.examples)}
        return self.taken([numbers[one.where] for one in examples])

    def taken(self, rows: Sequence[int]) -> "Pictures":
        """The pictures with these numbers."""
        examples = [self.examples[i] for i in rows]
        return Pictures(examples, lambda wanted: self.read([rows[i] for i in wanted]), self.is_in_memory)

    def statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The mean and the standard deviation of each channel, with pixels from 0 to 1, to four digits."""
        n_channels = self.read([0]).shape[1]
        counts = np.zeros((n_channels, 256))
        for start in range(0, len(self.examples), BLOCK):
            block = self.read(range(len(self.examples))[start : start + BLOCK])
            counts += [np.bincount(block[:, channel].ravel(), minlength=256) for channel in range(n_channels)]
        values, shares = np.arange(256) / 255, counts / counts.sum(1, keepdims=True)
        means = shares @ values
        deviations = np.sqrt((shares * (values - means[:, None]) ** 2).sum(1))
        return tuple(np.round(means, 4).tolist()), tuple(np.maximum(np.round(deviations, 4), 1e-4).tolist())


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
    for split, pictures in found.items():
        remedy = f"correct it, or move pictures of it from {SPLITS[split]} to training"
        check_known(pictures.examples, names, remedy=remedy)
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
    """n 3: the draws of an epoch, of which row i belongs to picture i."""
    return np.random.default_rng(seed).random((n, 3))


# --- a run's data ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EncodedPictures:
    """Pictures to train on and to measure with, and how they become pixels."""

    pixels: ImageConfig
    report: PictureReport
    splits: Mapping[str, Pictures]
    vocab_size: int = 1

    @property
    def fingerprints(self) -> dict[str, str]:
        """Split name -> a hash of its pixels and labels."""
        return {name: split.fingerprint for name, split in self.splits.items()}

    @property
    def files(self) -> dict[str, bytes]:
        """No tokenizer's."""
        return {}

    @property
    def documents(self) -> dict[str, JsonObject]:
        """The image processor's file."""
        return {PREPROCESSOR: self.pixels.to_document()}

    @property
    def digest(self) -> str:
        """A hash of the pictures and of how they become pixels."""
        return sha256(repr((sorted(self.fingerprints.items()), self.pixels)).encode()).hexdigest()

    @property
    def storage(self) -> str:
        """One line that says where the pixels are kept."""
        where = "in memory" if self.splits["train"].is_in_memory else "read from their files for each batch"
        return f"data: pictures {where} (data.storage)"

    def lines(self) -> list[str]:
        """The report as text, one finding a line."""
        return [*self.report.lines(), self.storage]
