"""Turns the tables of a decoder into those of an encoder with the same blocks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from clearhead.checkpoints.families.family import Document, Rules
from clearhead.checkpoints.families.rotary import modern
from clearhead.checkpoints.weights.fields import Field, FieldRule, Values
from clearhead.checkpoints.weights.mapping import Rule
from clearhead.config import ModelConfig


def _moved(path: str) -> str:
    return f"encoder.{path.removeprefix('decoder.')}" if path.startswith("decoder.") else path


def encoding(fields: Sequence[FieldRule]) -> tuple[FieldRule, ...]:
    """The same fields, which set those of the encoder."""

    def writer(write: Callable[[Any, Values], Any]) -> Callable[[Any, Values], Any]:
        return lambda value, ours: write(value, {**ours, "decoder": ours["encoder"]})

    return tuple(
        replace(field, ours=tuple(map(_moved, field.ours)), write=writer(field.write))
        if isinstance(field, Field)
        else field
        for field in fields
    )


def encoding_rules(rules: Rules) -> Callable[[ModelConfig], Sequence[Rule]]:
    """The same weight table, which fills the encoder."""
    return lambda config: [replace(rule, ours=tuple(map(_moved, rule.ours))) for rule in rules(config)]


def encoding_constants(constants: Document) -> Document:
    """The same settings, those of the encoder."""
    return {_moved(path): value for path, value in constants.items()}


def modern_with(theta: float) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Moves older fields into rope_parameters, whose rope_theta is `theta` where a config names none."""

    def modernize(document: dict[str, Any]) -> dict[str, Any]:
        document = modern(document)
        said = document["rope_parameters"]
        if isinstance(said, Mapping) and said.get("rope_theta") is None:
            document["rope_parameters"] = {**said, "rope_theta": theta}
        return document

    return modernize
