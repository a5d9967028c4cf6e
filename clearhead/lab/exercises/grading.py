"""Grades a file of the course's state: recomputes every judgement from the answers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, JsonValue, ValidationError

from clearhead.config import Config
from clearhead.errors import UserError
from clearhead.lab.exercises.exercise import FORMAT, Answer, ExerciseSet
from clearhead.lab.exercises.judging import RIGHT, Judge
from clearhead.lab.exercises.sets import SETS
from clearhead.weights.documents import read_json, shown

LIMIT = 4 << 20
"""Most bytes of a file."""
AGAIN = "export it again from the page"


class SetState(Config):
    """What a learner did in a set."""

    version: str
    answers: dict[str, Answer] = Field(default_factory=dict[str, Answer])
    judged: dict[str, str] = Field(default_factory=dict[str, str])
    """What the page said. It is compared, never trusted."""


class CourseState(Config):
    """A file that the pages export."""

    format: str
    sets: Annotated[dict[str, SetState], Field(max_length=1000)]


@dataclass(frozen=True)
class Grade:
    """An exercise of a set that the file has, and its judgement; None without an answer."""

    given: ExerciseSet
    exercise: str
    judgement: str | None
    claimed: str | None

    @property
    def is_right(self) -> bool:
        return self.judgement == RIGHT

    @property
    def is_told_otherwise(self) -> bool:
        """Whether the file says something else of the answer than the judge does."""
        return self.claimed is not None and self.claimed != self.judgement


def grades(path: Path) -> Iterator[Grade]:
    """The grade of every exercise of the sets in a file, in order.

    Raises UserError if it is no such file, or of another version of the exercises.
    """
    state = _read(path)
    for name in SETS:
        if name not in state.sets:
            continue
        given, own = SETS[name](), state.sets[name]
        if own.version != given.version:
            raise UserError(
                f"{path}:sets.{name}.version: expected {given.version}, the version of these exercises, got"
                f" {shown(own.version[:40])!r}; install the clearhead that made the page, or answer on a new page"
            )
        _check_names(path, given, own)
        for one in given.exercises:
            answer = own.answers.get(one.name)
            said = None if answer is None else Judge(one, given.models[one.model])(answer)
            yield Grade(given, one.name, said, own.judged.get(one.name))


def _check_names(path: Path, given: ExerciseSet, own: SetState) -> None:
    for name in {**own.answers, **own.judged}:
        if given.find(name) is None:
            raise UserError(
                f"{path}:sets.{given.name}: expected exercises of this set, got {shown(name[:40])!r}; {AGAIN}"
            )
    for name in own.judged:
        if name not in own.answers:
            raise UserError(f"{path}:sets.{given.name}.judged.{name}: expected an answer to it, got none; {AGAIN}")


def _read(path: Path) -> CourseState:
    if not path.is_file():
        raise UserError(f"{path}: expected a file of answers, found none; export it from a page of exercises")
    document: Mapping[str, JsonValue] = read_json(path, limit=LIMIT)
    if document.get("format") != FORMAT:
        raise UserError(
            f"{path}:format: expected {FORMAT}, a file of answers, got {shown(str(document.get('format'))[:40])};"
            " export one from a page of exercises"
        )
    try:
        state = CourseState.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = shown(".".join(map(str, first["loc"])))
        raise UserError(f"{path}:{field}: expected answers as a page writes them, got another value; {AGAIN}") from None
    unknown = next((name for name in state.sets if name not in SETS), None)
    if unknown is not None or not state.sets:
        got = "none" if unknown is None else repr(shown(unknown[:40]))
        raise UserError(f"{path}:sets: expected some of {', '.join(SETS)}, got {got}; {AGAIN}")
    return state
