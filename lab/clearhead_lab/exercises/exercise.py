"""What an exercise is: a small model, a task, what may be done, and a judge that looks at the mechanism."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from clearhead.api import Model
from clearhead.config import Config
from clearhead.explorer.answering.questions import Asked, Change, EditRequest, Natural, Number
from clearhead_lab.exercises.language import Condition

FORMAT = "clearhead-exercises/1"
LARGEST = 1e4
"""The largest number that an edit may set: beyond it float32 and float64 part ways."""
SLIPS = {"sign": (-1.0,), "place": (10.0, 0.1), "hundred": (100.0, 0.01)}
"""Slips in a number, and the factors that put them right."""
Do = Literal["zero", "mean", "set", "scale", "close"]
Input = str | tuple[str, str]
"""A text; for an encoder-decoder a source and a target."""


class Answer(Asked):
    """What a learner hands in: edits and a change of the config, a number, or the number of an option."""

    edits: Annotated[list[EditRequest], Field(max_length=128)] = Field(default_factory=list[EditRequest])
    change: Change = Change()
    number: Number | None = None
    choice: Natural | None = None


class Allowed(Config):
    """A value that may be edited, and how."""

    at: str
    do: tuple[Do, ...]


class Option(Config):
    """One of several answers: the edits that it makes, or the address that `@` stands for in the judge's terms."""

    label: str
    edits: tuple[dict[str, Any], ...] = ()
    change: dict[str, Any] = Field(default_factory=dict[str, Any])
    at: str = ""


class Wrong(Config):
    """A known wrong way: its name, the condition that recognises it, and the sentence that explains it."""

    name: str
    when: Condition
    says: str


class Exercise(Config):
    """A task and its judge."""

    name: str
    title: str
    task: str
    because: str
    """The answer and its reason, which the learner reads in the end."""
    model: str
    """The name of one of the set's models."""
    inputs: dict[str, Input]
    """The inputs by name. The page opens with `shown`."""
    right: Condition
    wrong: list[Wrong]
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
        """The names of inputs without their last digits: `unseen` for `unseen0`, `unseen1`. An input whose name has a
        dot goes with another input, and is in no group.
        """
        groups: dict[str, list[str]] = {}
        for name in self.inputs:
            if name != "shown" and "." not in name:
                groups.setdefault(name.rstrip("0123456789"), []).append(name)
        return groups


class ExerciseDocument(Config):
    """A file of exercises."""

    title: str
    exercise: list[Exercise]


@dataclass(frozen=True)
class ExerciseSet:
    """Exercises that share a page."""

    name: str
    title: str
    models: Mapping[str, Model]
    exercises: Sequence[Exercise]

    def find(self, name: str) -> Exercise | None:
        """The exercise of this name."""
        return next((exercise for exercise in self.exercises if exercise.name == name), None)

    @property
    def version(self) -> str:
        """Changes with every word, input and condition of the set."""
        document = [self.document(exercise) for exercise in self.exercises]
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:12]

    def document(self, exercise: Exercise) -> dict[str, Any]:
        """The exercise as the page reads it (ui/src/judge/exercise.ts)."""
        model = self.models[exercise.model]
        text, target = both(exercise.inputs["shown"])
        opens = {"text": text, "target": target, "view": exercise.view, "layer": exercise.layer, "head": exercise.head}
        return exercise.model_dump(mode="json", exclude={"view", "layer", "head"}) | {
            "kind": exercise.kind,
            "opens": opens,
            "slips": SLIPS if exercise.kind == "number" else {},
            "inputs": {name: ids_of(model, given) for name, given in exercise.inputs.items()},
            "groups": exercise.groups,
        }


def both(given: Input) -> tuple[str, str | None]:
    """The text and the target of an input."""
    return (given, None) if isinstance(given, str) else given


def ids_of(model: Model, given: Input) -> dict[str, list[int]]:
    """The tokens that each stack reads of an input."""
    read = model.reader.inputs(*both(given), model.generation)
    return {name: tokens.ids[0].tolist() for name, tokens in zip(model.config.stacks, read, strict=True)}
