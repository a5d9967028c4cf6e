"""Judges an answer by the values of the model: right, one of the known wrong ways, or neither."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from clearhead.api import Model
from clearhead.errors import UserError
from clearhead.explorer.answering.edits import functions, placed
from clearhead.explorer.answering.passes import axes_of
from clearhead.explorer.answering.requests import Change, EditRequest
from clearhead.lab.exercises.exercise import LARGEST, Answer, Exercise, ExerciseSet, Option, ids_of
from clearhead.lab.exercises.language import Term, holds
from clearhead.model import Tokens
from clearhead.model.mode import Evaluating
from clearhead.trace import Address, Edit, Trace

RIGHT, NOTHING, OUTSIDE, FAILS, OTHER = "right", "nothing", "outside", "fails", "other"
"""Names of judgements beside those of the wrong ways, the same in the page."""


@dataclass(frozen=True)
class Read:
    """One input in a batch of a pass."""

    seen: Trace
    row: int

    def value(self, at: str) -> Tensor:
        """The value at an address, without the batch axis."""
        return self.seen[at][self.row]


Reads = Mapping[str, Read]
"""A forward pass of every input, by its name."""


class Subject:
    """A model and the inputs of an exercise: its passes with and without edits."""

    def __init__(self, model: Model, exercise: Exercise) -> None:
        self.model, self.ids = model, {name: ids_of(model, given) for name, given in exercise.inputs.items()}
        self._variants: dict[tuple[bool, str | None], tuple[Model, dict[str, str]]] = {}

    @cached_property
    def plain(self) -> Reads:
        """The model as it is."""
        return self.passes(Answer())

    def passes(self, answer: Answer) -> Reads:
        """Every input with these edits. Raises UserError if an edit does not fit, or if a number is not finite."""
        model, axes = self._variant(answer.change)
        edits = placed(answer.edits, axes)
        by_shape: dict[tuple[int, ...], list[str]] = {}
        for name, ids in self.ids.items():
            by_shape.setdefault(tuple(map(len, ids.values())), []).append(name)
        found: dict[str, Read] = {}
        for names in by_shape.values():
            edit: dict[str, Edit] = dict(functions(edits, _no_other))
            batch = [torch.tensor([self.ids[name][stack] for name in names]) for stack in model.config.stacks]
            with Evaluating(model.network), torch.no_grad(), model.tracing(edit=edit) as seen:
                model.network(*(Tokens(ids) for ids in batch))
            _check_finite(seen)
            found |= {name: Read(seen, row) for row, name in enumerate(names)}
        return found

    def _variant(self, change: Change) -> tuple[Model, dict[str, str]]:
        """The model with another config, and the axes of its values."""
        key = change.scale, change.positions
        if key not in self._variants:
            model = self.model if key == (True, None) else self.model.changed(scale=key[0], positions=key[1])
            self._variants[key] = model, axes_of(model)
        return self._variants[key]


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
        """`right`, the name of a wrong way, or nothing, outside, fails, other."""
        one = self.exercise
        if not (answer.edits or _is_changed(answer) or answer.number is not None or answer.choice is not None):
            return NOTHING
        if not _is_inside(one, answer):
            return OUTSIDE
        option = one.options[answer.choice] if answer.choice is not None else Option("")
        made = Answer.model_validate({"edits": list(option.edits), "change": option.change}) if one.options else answer
        try:
            edited = self.subject.passes(made)
        except UserError:
            return FAILS
        runs = Runs(self.subject, edited, one.groups, _number(answer), option.at)
        named: list[tuple[str, Term]] = [(RIGHT, one.right), *((wrong.name, wrong.when) for wrong in one.wrong)]
        return next((name for name, term in named if holds(term, runs, "shown")), OTHER)


def judges(given: ExerciseSet) -> dict[str, Judge]:
    """The judge of each exercise of a set."""
    return {one.name: Judge(one, given.models[one.model]) for one in given.exercises}


def _is_inside(one: Exercise, answer: Answer) -> bool:
    """Whether the answer is of the kind that the exercise asks for, and does only what it allows."""
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


def _check_finite(seen: Trace) -> None:
    """Raises UserError if a value is NaN or infinite; -inf closes a cell."""
    for at in seen:
        if not bool((seen[at] < float("inf")).all()):
            raise UserError(f"{at}: expected finite numbers, got NaN or infinity; try another edit")


def _no_other(*_: object) -> Tensor:
    raise UserError("patch: expected no other run, got one; leave it out")
