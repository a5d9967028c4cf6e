"""What an exercise is: a small model, a task, what may be done, and a judge that looks at the mechanism."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Annotated, Any, Literal

from pydantic import Field

from clearhead.api import Model
from clearhead.explorer.answering.questions import Asked, Change, EditRequest, Natural, Number
from clearhead.lab.exercises.language import Term

FORMAT = "clearhead-exercises/1"
LARGEST = 1e4
"""The largest number that an edit may set: beyond it float32 and float64 part ways."""
SLIPS = {"sign": (-1.0,), "place": (10.0, 0.1), "hundred": (100.0, 0.01)}
"""Slips in a number, and the factors that put them right."""
Do = Literal["zero", "mean", "set", "scale", "close"]


class Answer(Asked):
    """What a learner hands in: edits and a change of the config, a number, or the number of an option."""

    edits: Annotated[list[EditRequest], Field(max_length=128)] = Field(default_factory=list[EditRequest])
    change: Change = Change()
    number: Number | None = None
    choice: Natural | None = None


Way = Callable[[Random], dict[str, Any]]
"""A simulated learner: an answer as JSON, other details each time."""
Input = str | tuple[str, str]
"""A text; for an encoder-decoder a source and a target."""


@dataclass(frozen=True)
class Allowed:
    """A value that may be edited, and how."""

    at: str
    do: tuple[Do, ...]


@dataclass(frozen=True)
class Option:
    """One of several answers: the edits that it makes, or the address that `@` stands for in the judge's terms."""

    label: str
    edits: tuple[dict[str, Any], ...] = ()
    change: dict[str, Any] = field(default_factory=dict[str, Any])
    at: str = ""


@dataclass(frozen=True)
class Wrong:
    """A known wrong way: how it is recognised, the sentence that tells of it, and a learner that goes it."""

    name: str
    when: Term
    says: str
    way: Way


@dataclass(frozen=True)
class Exercise:
    """A task and its judge."""

    name: str
    title: str
    task: str
    model: str
    """The name of one of the set's models."""
    inputs: Mapping[str, Input]
    """The inputs by name. The page opens with `shown`."""
    right: Term
    because: str
    """What the learner reads in the end: the answer, and why."""
    way: Way
    wrong: tuple[Wrong, ...]
    allows: tuple[Allowed, ...] = ()
    changes: tuple[Literal["scale", "positions"], ...] = ()
    options: tuple[Option, ...] = ()
    source: str = ""
    view: str = "attention"
    """The place of the explorer that it opens at."""
    layer: int = 0
    head: int = 0

    @property
    def kind(self) -> Literal["edits", "choice", "number"]:
        return "choice" if self.options else "edits" if self.allows or self.changes else "number"

    @property
    def groups(self) -> dict[str, list[str]]:
        """Names without their last digits: `unseen` for those that the learner did not see. A name with a dot goes with
        another input.
        """
        found: dict[str, list[str]] = {}
        for name in self.inputs:
            if name != "shown" and "." not in name:
                found.setdefault(name.rstrip("0123456789"), []).append(name)
        return found


@dataclass(frozen=True)
class ExerciseSet:
    """Exercises that share a page."""

    name: str
    title: str
    models: Mapping[str, Model]
    exercises: Sequence[Exercise]

    def find(self, name: str) -> Exercise | None:
        """The exercise of this name."""
        return next((one for one in self.exercises if one.name == name), None)

    @property
    def version(self) -> str:
        """Changes with every word, input and condition of the set."""
        document = [self.document(one) for one in self.exercises]
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:12]

    def document(self, one: Exercise) -> dict[str, Any]:
        """The exercise as the page reads it (ui/src/judge/exercise.ts)."""
        model = self.models[one.model]
        text, target = both(one.inputs["shown"])
        return {
            "name": one.name, "title": one.title, "task": one.task, "model": one.model, "kind": one.kind,
            "source": one.source, "because": one.because, "right": one.right,
            "opens": {"text": text, "target": target, "view": one.view, "layer": one.layer, "head": one.head},
            "allows": [{"at": allowed.at, "do": list(allowed.do)} for allowed in one.allows],
            "changes": list(one.changes), "slips": SLIPS if one.kind == "number" else {},
            "options": [{**vars(option), "edits": list(option.edits)} for option in one.options],
            "inputs": {name: ids_of(model, given) for name, given in one.inputs.items()},
            "groups": one.groups,
            "wrong": [{"name": wrong.name, "when": wrong.when, "says": wrong.says} for wrong in one.wrong],
        }  # fmt: skip


def both(given: Input) -> tuple[str, str | None]:
    """The text and the target of an input."""
    return (given, None) if isinstance(given, str) else given


def ids_of(model: Model, given: Input) -> dict[str, list[int]]:
    """The tokens that each stack reads of an input."""
    read = model.reader.inputs(*both(given), model.generation)
    return {name: tokens.ids[0].tolist() for name, tokens in zip(model.config.stacks, read, strict=True)}
