"""Looks for silent differences: random configs of every type, and every field of every type alone."""

import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from clearhead.checkpoints.families import families
from tests.coverage import draw, folders
from tests.coverage.outcome import WRONG, Outcome, outcome
from tests.parity.harness import Case


@dataclass(frozen=True)
class Trial:
    """One config and what became of it."""

    case: Case
    changes: dict[str, Any]
    found: Outcome
    """`different` also for a field that changes the reference's logits and nothing here."""

    def __str__(self) -> str:
        return f"{self.found.what}: {self.case.family} {self.case.architecture} {self.changes}: {self.found.told}"


@dataclass
class Tally:
    """What became of all."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[Trial] = field(default_factory=list)

    def add(self, trial: Trial) -> None:
        """Counts one."""
        self.counts[trial.found.what] += 1
        if trial.found.what in WRONG:
            self.wrong.append(trial)


@cache
def classes() -> list[Case]:
    """A tiny config of every class of every family."""
    found = [folders.tiny(family.model_type, head.architecture) for family in families() for head in family.heads]
    return [case for case in found if case is not None]


def named(only: str) -> list[Case]:
    """The classes whose type and name contain one of these words, which commas part."""
    return [case for case in classes() if any(word in f"{case.family} {case.architecture}" for word in only.split(","))]


def trial(n: int, seed: int, only: str = "") -> Trial:
    """The random config of this number. One in twenty is of a class that its family does not have."""
    chance = random.Random(f"{seed}/{n}")
    case = chance.choice(by_type(chance, only))
    if chance.random() < 0.05:
        one = folders.Modelled(module(case.family), case.family)
        case = replace(case, architecture=chance.choice(folders.classes(one) or (case.architecture,)))
    try:
        case, changes = draw.drawn(case, chance)
    except (TypeError, ValueError, AttributeError) as error:
        return Trial(case, {}, Outcome("no reference", str(error)))
    with tempfile.TemporaryDirectory() as folder:
        return Trial(case, changes, outcome(case, Path(folder), as_given=chance.random() < 0.5))


def by_type(chance: random.Random, only: str) -> list[Case]:
    """The classes of one model type, each type as likely as the others."""
    cases = named(only)
    kind = chance.choice(sorted({case.family for case in cases}))
    return [case for case in cases if case.family == kind]


def module(model_type: str) -> str:
    """The folder of a model type."""
    return next((folder for folder, names in folders.types().items() if model_type in names), model_type)


def random_trials(*, first: int, n: int, seed: int, only: str = "") -> Iterator[Trial]:
    """Trials of which the reference builds and runs the model, until there are n. Others count for nothing."""
    done, number = 0, first
    while done < n:
        found = trial(number, seed, only)
        done += found.found.what != "no reference"
        number += 1
        yield found


OF_THE_BATCH = ("pad_token_id", "decoder_vocab_size")
"""Fields that decide which tokens are compared, so that other logits mean nothing."""


def field_trials(case: Case, *, values: int, seed: int) -> Iterator[Trial]:
    """Every field of a class alone, at so many of the values that it may have."""
    fields, types = draw.known_fields(case), draw.hints(case)
    with tempfile.TemporaryDirectory() as folder:
        base = outcome(case, Path(folder))
    for name in dict.fromkeys([*fields, *draw.EXTRAS]):
        found = [*draw.others(name, fields.get(name), types.get(name, "")), *draw.EXTRAS.get(name, ())]
        for value in random.Random(f"{seed}/{case}/{name}").sample(found, min(values, len(found))):
            changed = replace(case, config={**case.config, name: value}, variant=name)
            with tempfile.TemporaryDirectory() as folder:
                found_now = outcome(changed, Path(folder))
            yield Trial(changed, {name: value}, found_now if name in OF_THE_BATCH else inert(base, found_now))


def inert(base: Outcome, found: Outcome) -> Outcome:
    """The outcome, or a difference where the reference's logits change and our network is the same as before."""
    if found.what != "close" or base.what != "close" or found.config != base.config:
        return found
    pairs = [(a, b) for a, b in zip(base.theirs, found.theirs, strict=False) if a.shape == b.shape]
    moved = max((float((a - b).abs().max()) for a, b in pairs), default=0.0)
    return (
        replace(found, what="different", told=f"changes the reference alone, by {moved:.1e}")
        if moved > NOISE
        else found
    )


NOISE = 20 * torch.finfo(torch.float32).eps
