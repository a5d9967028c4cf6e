"""Simulated learners: each goes the right way or a known wrong way, with other details each time, and writes its answer
down in its own manner.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement
from pathlib import Path
from random import Random
from typing import Any

from clearhead_lab.exercises.exercise import SLIPS, Answer, ExerciseSet
from clearhead_lab.exercises.judging import OTHER, RIGHT, Judge
from lab.tests.exercises.manners import Manners

FOLDER = Path(__file__).with_name("learners")
TOGETHER = 64
"""Answers that share a pass."""


@dataclass(frozen=True)
class Learner:
    """An answer, and how it should be judged."""

    exercise: str
    expected: str
    answer: dict[str, Any]


def learners(given: ExerciseSet, n: int, seed: int = 0) -> Iterator[Learner]:
    """n learners for the right way and for each wrong way of every exercise."""
    for one in given.exercises:
        manners = Manners(one, given.models[one.model])
        for name, answers in ways(given.name)[one.name].items():
            random = Random(f"{seed} {one.name} {name}")
            for _ in range(n):
                yield Learner(one.name, name, manners(drawn(answers, random), random))


def undecided(given: ExerciseSet, n: int, seed: int = 0) -> Iterator[tuple[str, str, Learner]]:
    """n learners for each pair of ways, who make the edits of both; and how Python's judge judges them. A way with
    itself makes its edits twice, with other details.
    """
    for one in given.exercises:
        if one.kind != "edits":
            continue
        judge = Judge(one, given.models[one.model])
        own = ways(given.name)[one.name]
        for first, second in combinations_with_replacement(own, 2):
            random = Random(f"{seed} {one.name} {first} {second}")
            answers = [_both(drawn(own[first], random), drawn(own[second], random)) for _ in range(n)]
            for answer, said in zip(answers, _judged(judge, answers), strict=True):
                yield first, second, Learner(one.name, said, answer)


def slipped(given: ExerciseSet, seed: int = 0) -> Iterator[tuple[str, Learner]]:
    """The right number with each slip, and another number: what it is, and how Python's judge judges it."""
    for one in given.exercises:
        if one.kind != "number":
            continue
        number = drawn(ways(given.name)[one.name][RIGHT], Random(f"{seed} {one.name}"))["number"]
        made = [(name, number / by) for name, factors in SLIPS.items() for by in factors if number]
        made.append((OTHER, 7.7 * number + 3.3))
        answers = [{"number": wrong} for _, wrong in made]
        said = _judged(Judge(one, given.models[one.model]), answers)
        for (name, _), answer, judgement in zip(made, answers, said, strict=True):
            yield name, Learner(one.name, judgement, answer)


def misjudged(given: ExerciseSet, n: int, seed: int = 0) -> Iterator[tuple[Learner, str]]:
    """The learners that are judged otherwise than expected, with the judgement."""
    found: dict[str, list[Learner]] = {one.name: [] for one in given.exercises}
    for learner in learners(given, n, seed):
        found[learner.exercise].append(learner)
    for one in given.exercises:
        own = found[one.name]
        said = _judged(Judge(one, given.models[one.model]), [learner.answer for learner in own])
        yield from ((learner, by) for learner, by in zip(own, said, strict=True) if by != learner.expected)


@cache
def ways(name: str) -> dict[str, dict[str, list[Any]]]:
    """The answers that lead to each judgement of each exercise of a set."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def drawn(answers: list[Any], random: Random) -> Any:
    """One of these answers, with a number from each of its ranges."""
    return _filled(random.choice(answers), random)


def _filled(form: Any, random: Random) -> Any:
    match form:
        case {"near": x, "by": by}:
            written = [x + random.uniform(-by, by), round(x, 3), round(x, 4), math.trunc(1000 * x) / 1000]
            return {"number": random.choice(written)}
        case {"from": low, "to": high}:
            return random.uniform(low, high)
        case Mapping():
            return {key: _filled(value, random) for key, value in form.items()}
        case list():
            return [_filled(value, random) for value in form]
        case _:
            return form


def _judged(judge: Judge, answers: list[dict[str, Any]]) -> Iterator[str]:
    for i in range(0, len(answers), TOGETHER):
        yield from judge.several([Answer.model_validate(one) for one in answers[i : i + TOGETHER]])


def _both(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """The edits of both answers; of two at one address the page keeps the later."""
    edits = {edit["at"]: edit for answer in (first, second) for edit in answer["edits"]}
    change = {**first.get("change", {}), **second.get("change", {})}
    return {"edits": list(edits.values())} | ({"change": change} if change else {})
