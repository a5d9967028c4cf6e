"""The sets of exercises, one page each: their texts and conditions stand in sets/NAME.toml, their models here."""

import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from clearhead.api import Model
from clearhead_lab.exercises import networks as n
from clearhead_lab.exercises.exercise import ExerciseDocument, ExerciseSet

FOLDER = Path(__file__).with_name("sets")
MODELS: dict[str, dict[str, Callable[[], Model]]] = {
    "positions": {"blind": n.drawn_encoder, "sighted": partial(n.drawn_encoder, sinusoidal=True), "waves": n.waves},
    "meaning": {"bank": n.bank, "drawn": n.drawn_encoder},
    "looking": {"copier": n.copier, "drawn": n.drawn_decoder},
    "scaling": {"wide": n.wide_head, "unscaled": partial(n.wide_head, scaled=False)},
    "masks": {
        "peeker": n.peeker, "copier": n.copier, "encoder": n.drawn_encoder, "decoder": n.drawn_decoder,
    },
    "norms": {"normed": n.normed},
    "stream": {"mixer": n.mixer, "decoder": n.drawn_decoder},
    "knowing": {"facts": n.facts, "drawn": n.drawn_decoder},
    "repeating": {"induction": n.induction},
    "translating": {"translator": n.translator},
}  # fmt: skip
"""The builder of each model of a set, by the names in its exercises. The sets stand in the order of the course."""


def read_set(name: str, makers: Mapping[str, Callable[[], Model]]) -> ExerciseSet:
    """The exercises of a set, and its models."""
    document = ExerciseDocument.model_validate(tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8")))
    return ExerciseSet(name, document.title, {key: make() for key, make in makers.items()}, document.exercise)


SETS: dict[str, Callable[[], ExerciseSet]] = {name: partial(read_set, name, makers) for name, makers in MODELS.items()}
"""Builds each set, by name."""
