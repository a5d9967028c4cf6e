"""Passes of an exercise's model over its inputs. Answers with other edits share a batch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from clearhead.analysis.passes import inference
from clearhead.api import Model
from clearhead.capture.passes import every_address
from clearhead.errors import UserError
from clearhead.explorer.answering.edits import functions, resolve
from clearhead.explorer.answering.questions import Change, EditRequest
from clearhead.model import Tokens
from clearhead.trace import Edit, Trace
from clearhead_lab.exercises.exercise import Answer, Exercise, ids_of


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
        self._unedited: dict[tuple[bool, str | None], Reads] = {}

    @cached_property
    def plain(self) -> Reads:
        """The model as it is."""
        return self._without_edits(Change())

    def passes(self, answers: Sequence[Answer]) -> list[Reads | UserError]:
        """For each answer every input with its edits, or why there are none."""
        found: dict[int, Reads | UserError] = {}
        together: dict[tuple[bool, str | None], list[int]] = {}
        for i, answer in enumerate(answers):
            try:
                if answer.edits:
                    self._variant(answer.change)
                    together.setdefault(_key(answer.change), []).append(i)
                else:
                    found[i] = self._without_edits(answer.change)
            except UserError as error:
                found[i] = error
        for places in together.values():
            made = self._edited(answers[places[0]].change, [answers[i].edits for i in places])
            found |= dict(zip(places, made, strict=True))
        return [found[i] for i in range(len(answers))]

    def _without_edits(self, change: Change) -> Reads:
        """Every input, computed once. Raises UserError if a number is not finite."""
        key = _key(change)
        if key not in self._unedited:
            (made,) = self._edited(change, [[]])
            if isinstance(made, UserError):
                raise made
            self._unedited[key] = made
        return self._unedited[key]

    def _edited(self, change: Change, lists: Sequence[Sequence[EditRequest]]) -> list[Reads | UserError]:
        """Every input with each of several lists of edits."""
        model, axes = self._variant(change)
        by_shape: dict[tuple[int, ...], list[str]] = {}
        for name, ids in self.ids.items():
            by_shape.setdefault(tuple(map(len, ids.values())), []).append(name)
        found: list[dict[str, Read]] = [{} for _ in lists]
        rows = Rows(lists, axes)
        for names in by_shape.values():
            batch = [torch.tensor([self.ids[name][stack] for name in names]) for stack in model.config.stacks]
            with inference(model.network), model.tracing(edit=rows.edits(len(names))) as seen:
                model.network(*(Tokens(ids.repeat(len(lists), 1)) for ids in batch))
            rows.check_finite(seen, len(names))
            for i, reads in enumerate(found):
                reads |= {name: Read(seen, i * len(names) + row) for row, name in enumerate(names)}
        return [rows.failed.get(i, reads) for i, reads in enumerate(found)]

    def _variant(self, change: Change) -> tuple[Model, dict[str, str]]:
        """The model with another config, and the axes of its values."""
        key = _key(change)
        if key not in self._variants:
            model = self.model if key == (True, None) else self.model.changed(scale=key[0], positions=key[1])
            self._variants[key] = model, every_address(model).axes
        return self._variants[key]


class Rows:
    """Several lists of edits in one batch. Each changes only its own rows."""

    def __init__(self, lists: Sequence[Sequence[EditRequest]], axes: Mapping[str, str]) -> None:
        self.n, self.failed = len(lists), dict[int, UserError]()
        """The error of each list that does not fit the model, by its number."""
        self._by_path: dict[str, list[tuple[int, Callable[[Tensor], Tensor]]]] = {}
        for i, edits in enumerate(lists):
            try:
                made = functions(resolve(edits, axes), _no_other)
            except UserError as error:
                self.failed[i] = error
                continue
            for path, edit in made.items():
                self._by_path.setdefault(path, []).append((i, edit))

    def edits(self, n_inputs: int) -> dict[str, Edit]:
        """For a trace, by path."""

        def edited(path: str, value: Tensor) -> Tensor:
            value = value.clone()
            for i, edit in self._by_path[path]:
                own = slice(i * n_inputs, (i + 1) * n_inputs)
                try:
                    value[own] = edit(value[own])
                except UserError as error:
                    self.failed.setdefault(i, error)
            return value

        return {path: partial(edited, path) for path in self._by_path}

    def check_finite(self, seen: Trace, n_inputs: int) -> None:
        """A list fails if a value of its rows is NaN or infinite; -inf closes a cell."""
        for at in seen:
            is_finite = (seen[at] < float("inf")).flatten(1).all(1).view(self.n, n_inputs).all(1)
            for i in (~is_finite).nonzero().flatten().tolist():
                message = f"{at}: expected finite numbers, got NaN or infinity; try another edit"
                self.failed.setdefault(i, UserError(message))


def _key(change: Change) -> tuple[bool, str | None]:
    return change.scale, change.positions


def _no_other(*_: object) -> Tensor:
    raise UserError("patch: expected no other run, got one; leave it out")
