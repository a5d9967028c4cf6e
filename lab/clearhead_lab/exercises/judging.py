"""Judges an answer by the values of the model: right, one of the known wrong ways, a slip in a number, or neither."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from clearhead.api import Model
from clearhead.errors import UserError
from clearhead.explorer.answering.questions import EditRequest
from clearhead.trace import Address
from clearhead_lab.exercises.exercise import LARGEST, SLIPS, Answer, Exercise, ExerciseSet
from clearhead_lab.exercises.language import Term, holds
from clearhead_lab.exercises.passes import Reads, Subject

RIGHT, NOTHING, OUTSIDE, FAILS, OTHER = "right", "nothing", "outside", "fails", "other"
"""Names of judgements beside those of the wrong ways, the same in the page."""


@dataclass(frozen=True)
class Runs:
    """What the terms of a judge read (`language.Runs`)."""

    subject: Subject
    edited: Reads
    groups: Mapping[str, Sequence[str]]
    number: float
    at: str

    def value(self, at: str, on: str, *, plain: bool) -> Tensor:
        reads = self.subject.plain if plain else self.edited
        return reads[on].value(at.replace("@", self.at))

    def ids(self, stack: str, on: str) -> Tensor:
        return torch.tensor(self.subject.ids[on][stack])

    def answer(self) -> float:
        return self.number


class Judge:
    """Judges the answers to one exercise."""

    def __init__(self, exercise: Exercise, model: Model) -> None:
        self.exercise, self.subject = exercise, Subject(model, exercise)

    def __call__(self, answer: Answer) -> str:
        """`right`, the name of a wrong way or of one of SLIPS, or nothing, outside, fails, other."""
        return self.several([answer])[0]

    def several(self, answers: Sequence[Answer]) -> list[str]:
        """The judgement of each answer."""
        said = [self._at_first_sight(answer) for answer in answers]
        left = [i for i, one in enumerate(said) if one is None]
        for i, made in zip(left, self.subject.passes([self._made(answers[i]) for i in left]), strict=True):
            said[i] = FAILS if isinstance(made, UserError) else self._by_values(answers[i], made)
        return [one or OTHER for one in said]

    def _at_first_sight(self, answer: Answer) -> str | None:
        """The judgement of what needs no pass; None for the others."""
        if not (answer.edits or _is_changed(answer) or answer.number is not None or answer.choice is not None):
            return NOTHING
        return None if _is_inside(self.exercise, answer) else OUTSIDE

    def _made(self, answer: Answer) -> Answer:
        """The edits of the option that was chosen, or the learner's own."""
        if answer.choice is None:
            return answer
        option = self.exercise.options[answer.choice]
        return Answer.model_validate({"edits": list(option.edits), "change": option.change})

    def _by_values(self, answer: Answer, edited: Reads) -> str | None:
        """The name of the first condition that holds."""
        one = self.exercise
        at = "" if answer.choice is None else one.options[answer.choice].at
        runs = Runs(self.subject, edited, one.groups, _number(answer), at)
        named: list[tuple[str, Term]] = [(RIGHT, one.right), *((wrong.name, wrong.when) for wrong in one.wrong)]
        return next((name for name, term in named if holds(term, runs, "shown")), self._slip(runs))

    def _slip(self, runs: Runs) -> str | None:
        """The slip without which the number is right. None where 0 is right, to which any number comes near."""

        def is_right(number: float) -> bool:
            return holds(self.exercise.right, replace(runs, number=number), "shown")

        if self.exercise.kind != "number" or is_right(0.0):
            return None
        return next((name for name, by in SLIPS.items() if any(is_right(runs.number * one) for one in by)), None)


def judges(given: ExerciseSet) -> dict[str, Judge]:
    """The judge of each exercise of a set."""
    return {one.name: Judge(one, given.models[one.model]) for one in given.exercises}


def _is_inside(one: Exercise, answer: Answer) -> bool:
    """True if the answer is of the kind that the exercise asks for, with allowed edits only."""
    if one.kind != "edits":
        is_number, is_choice = answer.number is not None, answer.choice is not None
        wanted = (one.kind == "number", one.kind == "choice")
        if (is_number, is_choice) != wanted or answer.edits or _is_changed(answer):
            return False
        return answer.choice is None or answer.choice < len(one.options)
    if answer.number is not None or answer.choice is not None:
        return False
    changed = {"scale": not answer.change.scale, "positions": answer.change.positions is not None}
    return all(is_made <= (name in one.changes) for name, is_made in changed.items()) and all(
        _is_allowed(one, edit) for edit in answer.edits
    )


def _number(answer: Answer) -> float:
    return answer.number if answer.number is not None else float(answer.choice or 0)


def _is_changed(answer: Answer) -> bool:
    return not answer.change.scale or answer.change.positions is not None


def _is_allowed(one: Exercise, edit: EditRequest) -> bool:
    values = edit.value if isinstance(edit.value, list) else [edit.value or 0.0]
    try:
        path = Address.parse(edit.at).path
    except UserError:
        return False
    is_small = all(abs(value) <= LARGEST for value in values)
    return is_small and any(path == allowed.at and edit.do in allowed.do for allowed in one.allows)
