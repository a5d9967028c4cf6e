"""A decoder's tables turned into those of an encoder with the same blocks."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.weights.fields import Field, FieldRule, FieldRules, Values
from clearhead.checkpoints.weights.mapping import Rule
from clearhead.config import ModelConfig


def _moved(path: str) -> str:
    return f"encoder.{path.removeprefix('decoder.')}" if path.startswith("decoder.") else path


def encoding(fields: Sequence[FieldRule]) -> FieldRules:
    """The same fields, which set those of the encoder."""

    def writer(write: Callable[[Any, Values], Any]) -> Callable[[Any, Values], Any]:
        return lambda value, ours: write(value, {**ours, "decoder": ours["encoder"]})

    return tuple(
        replace(field, ours=tuple(map(_moved, field.ours)), write=writer(field.write))
        if isinstance(field, Field)
        else field
        for field in fields
    )


def as_encoder(family: Family, **changes: Any) -> Family:
    """The family of encoders with the same blocks."""
    constants = {_moved(path): value for path, value in family.constants.items()}

    def rules(config: ModelConfig) -> Sequence[Rule]:
        return [replace(rule, ours=tuple(map(_moved, rule.ours))) for rule in family.rules(config)]

    changed: dict[str, Any] = {"constants": constants, "fields": encoding(family.fields), "rules": rules, **changes}
    return replace(family, **changed)
