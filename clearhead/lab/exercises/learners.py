"""Simulated learners: each goes the right way or a known wrong way, with other details each time."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from clearhead.lab.exercises.exercise import Answer, ExerciseSet
from clearhead.lab.exercises.judging import RIGHT, judges


@dataclass(frozen=True)
class Learner:
    """An answer, and how it should be judged."""

    exercise: str
    expected: str
    answer: dict[str, Any]


def learners(given: ExerciseSet, n: int, seed: int = 0) -> Iterator[Learner]:
    """n learners for the right way and for each wrong way of every exercise."""
    for one in given.exercises:
        for name, way in ((RIGHT, one.way), *((wrong.name, wrong.way) for wrong in one.wrong)):
            random = Random(f"{seed} {one.name} {name}")
            for _ in range(n):
                yield Learner(one.name, name, way(random))


def misjudged(given: ExerciseSet, n: int, seed: int = 0) -> Iterator[tuple[Learner, str]]:
    """The learners that are judged otherwise than expected, with the judgement."""
    judge = judges(given)
    for learner in learners(given, n, seed):
        said = judge[learner.exercise](Answer.model_validate(learner.answer))
        if said != learner.expected:
            yield learner, said
