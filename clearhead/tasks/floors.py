"""Floors: what simple methods score on the examples that a run holds out. Imports no torch.

A run computes them once, before its first step, and keeps them in its folder. They are no part of its training.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

from pydantic import ValidationError

from clearhead.config import Config
from clearhead.recipe.places import FLOOR
from clearhead.tasks.evaluation import Evaluation
from clearhead.tasks.scores import Score


class Floor(Config):
    """The main score of a simple method."""

    name: str
    """The method, such as "TF-IDF + LR"."""
    split: str
    """The examples that it was scored on: valid or test."""
    score: str
    value: float
    interval: tuple[float, float] | None = None
    n: int | None = None
    """The number of these examples, where the score has a row for each."""
    setting: str = ""
    """What validation chose, such as "C = 10"."""
    about: str = ""
    """What to know of it, such as "fitted to 9,000 of 20,000 texts"."""

    @classmethod
    def of(cls, name: str, split: str, score: Score, **more: str) -> Self:
        """The floor of a score."""
        n = None if score.rows is None else len(score.rows)
        return cls(name=name, split=split, score=score.name, value=score.value, interval=score.interval, n=n, **more)

    def __str__(self) -> str:
        interval = "" if self.interval is None else " ({:.4f} to {:.4f})".format(*self.interval)
        return f"{self.name} {self.value:.4f}{interval}{self.about and f' [{self.about}]'}"


class Floors(Config):
    """The floors of a run."""

    floors: tuple[Floor, ...] = ()

    def on(self, *splits: str) -> Sequence[Floor]:
        """The floors on the first of these splits that has some."""
        found = ([one for one in self.floors if one.split == split] for split in splits)
        return next(filter(None, found), [])


@runtime_checkable
class HasFloors(Protocol):
    """A task that states its floors. One without an honest simple method has none."""

    def floors(self, held_out: Mapping[str, Any]) -> Iterable[Floor]:
        """What simple methods, fitted to the training examples, score on each other split, by name."""
        ...


def read_floors(folder: Path) -> Floors | None:
    """The floors that the folder of a run, or of one of its checkpoints, records; None if it has none."""
    for place in (folder, folder.parent):
        try:
            return Floors.model_validate_json((place / FLOOR).read_bytes())
        except (OSError, ValidationError):
            continue
    return None


def comparable(floors: Sequence[Floor], found: Evaluation) -> Sequence[Floor]:
    """The floors of the scores of an evaluation, unless it measured another number of examples."""
    sizes = {score.name: None if score.rows is None else len(score.rows) for score in found.scores}
    return [one for one in floors if one.score in sizes and one.n in (None, sizes[one.score])]


def line_of(floors: Sequence[Floor]) -> str:
    """Floors of one score as one line."""
    return f"{floors[0].score}: {'; '.join(map(str, floors))}"
