"""Grades files of the course's state: recomputes every judgement from the answers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, JsonValue, ValidationError

from clearhead.checkpoints.weights.documents import read_json, shown
from clearhead.config import Config
from clearhead.errors import UserError
from clearhead_lab.exercises.exercise import FORMAT, Answer, Exercise, ExerciseSet
from clearhead_lab.exercises.judging import FAILS, NOTHING, OUTSIDE, RIGHT, Judge
from clearhead_lab.exercises.sets import SETS

LIMIT = 4 << 20
"""Most bytes of a file."""
AGAIN = "export it again from the page"
TOLD = {
    NOTHING: "no edit, number or choice is given",
    OUTSIDE: "it does something that the exercise does not allow",
    FAILS: "an edit does not fit the model, or makes numbers that are not finite",
    "sign": "the number has the wrong sign",
    "place": "the decimal point stands one place too far left or right",
    "hundred": "the number is 100 times too large or too small, as a percentage without its sign is",
}
"""What is said of judgements that no wrong way has."""
UNKNOWN = {
    "number": "the number is another, and no known mistake leads to it",
    "edits": "the model does not do what is asked, by none of the known ways",
    "choice": "the answer is another",
}
"""What is said of any other judgement, by the kind of exercise."""


class SetState(Config):
    """What a learner did in a set."""

    version: str
    clearhead: str | None = None
    """The version that wrote the page; None if the file does not say."""
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
        """True if the file claims another judgement than the judge's."""
        return self.claimed is not None and self.claimed != self.judgement

    @property
    def of(self) -> Exercise:
        found = self.given.find(self.exercise)
        assert found is not None
        return found

    @property
    def says(self) -> str:
        """The mistake in one sentence; empty for a right answer, and if there is no answer."""
        if self.is_right or self.judgement is None:
            return ""
        known = TOLD | {wrong.name: wrong.says for wrong in self.of.wrong}
        return known.get(self.judgement, UNKNOWN[self.of.kind])


@dataclass(frozen=True)
class Graded:
    """A file: the grades of the sets that can be graded, and a line for each of the others."""

    path: Path
    grades: list[Grade] = field(default_factory=list[Grade])
    problems: list[str] = field(default_factory=list[str])


def files_of(paths: Sequence[Path]) -> list[Path]:
    """The files, and every .json file in the folders. Raises UserError for a folder that has none."""
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.rglob("*.json")) if path.is_dir() else [path]
        if not inside:
            raise UserError(f"{path}: expected a folder of exported answers, found no .json file; name another folder")
        found += inside
    return list(dict.fromkeys(found))


def graded(path: Path) -> Graded:
    """Every exercise of the sets in a file, in the order of the course."""
    try:
        state = _read(path)
    except UserError as error:
        return Graded(path, problems=[str(error)])
    made = Graded(path)
    for name, own in _in_order(state.sets):
        try:
            made.grades.extend(_of_set(path, name, own))
        except UserError as error:
            made.problems.append(str(error))
    return made


def _in_order(sets: Mapping[str, SetState]) -> Iterator[tuple[str, SetState]]:
    """The sets of a file, the known ones first."""
    for name in sorted(sets, key=[*SETS, *sets].index):
        yield name, sets[name]


def _of_set(path: Path, name: str, own: SetState) -> list[Grade]:
    if name not in SETS:
        raise UserError(f"{path}:sets: expected some of {', '.join(SETS)}, got {shown(name[:40])!r}; {AGAIN}")
    given = _known(name)
    if own.version != given.version:
        page = "the clearhead that made the page" if own.clearhead is None else f"clearhead {shown(own.clearhead[:40])}"
        raise UserError(
            f"{path}:sets.{name}.version: expected {given.version}, the version of these exercises, got"
            f" {shown(own.version[:40])!r}; install {page} to grade it, or let the answers be given on a new page"
        )
    _check_names(path, given, own)
    found: list[Grade] = []
    for one in given.exercises:
        answer = own.answers.get(one.name)
        said = None if answer is None else _judge(name, one.name)(answer)
        found.append(Grade(given, one.name, said, own.judged.get(one.name)))
    return found


@cache
def _known(name: str) -> ExerciseSet:
    return SETS[name]()


@cache
def _judge(name: str, exercise: str) -> Judge:
    one = _known(name).find(exercise)
    assert one is not None
    return Judge(one, _known(name).models[one.model])


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
    document: Mapping[str, JsonValue] = read_json(path, limit=LIMIT, remedy=AGAIN)
    if document.get("format") != FORMAT:
        raise UserError(
            f"{path}:format: expected {FORMAT}, a file of answers, got {shown(str(document.get('format'))[:40])};"
            " export one from a page of exercises"
        )
    try:
        state = CourseState.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field_ = shown(".".join(map(str, first["loc"])))
        message = f"{path}:{field_}: expected answers as a page writes them, got another value; {AGAIN}"
        raise UserError(message) from None
    if not state.sets:
        raise UserError(f"{path}:sets: expected some of {', '.join(SETS)}, got none; {AGAIN}")
    return state
