"""The changes of a recipe's fields on the command line: `--training.clip 0.5`. Imports no torch."""

from collections.abc import Mapping, Sequence
from typing import Any

from clearhead import recipe as recipes
from clearhead.errors import UserError
from clearhead.tasks.registry import field_names


def tables_given(changes: Sequence[str], short: Mapping[str, object], *, options: Sequence[str]) -> dict[str, Any]:
    """The tables that a command line gives: `short` are options of fields of training, `options` all others."""
    fields = [(f"training.{name}", str(value)) for name, value in short.items() if value is not None]
    return recipes.nested([*fields, *pairs(changes, options=(*options, *short))])


def training_of(changes: Sequence[str], short: Mapping[str, object]) -> dict[str, Any]:
    """The changes to training that a command line gives. Raises UserError for a field of another table."""
    tables = tables_given(changes, short, options=("tensorboard", "json"))
    for name in tables.keys() - {"training"}:
        raise UserError(f"--{name}: expected a field of training, which a run may change; start a new run for others")
    training = tables.get("training", {})
    if not isinstance(training, dict):
        raise UserError(f"--training: expected one of its fields, got {training!r}; try --training.steps")
    return training


def pairs(changes: Sequence[str], *, options: Sequence[str]) -> list[tuple[str, str]]:
    """`--training.clip 0.5` or `--training.clip=0.5` as (name, value).

    Raises UserError for a name that is neither; `options` are the command's own, one of which may be meant.
    """
    result: list[tuple[str, str]] = []
    rest = list(changes)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise UserError(f"{word}: expected a field such as --training.clip, got a value; write --FIELD VALUE")
        dashed, equals, value = word[2:].partition("=")
        name = dashed.replace("-", "_")
        if name.partition(".")[0] not in field_names().tables:
            meant = field_names().nearest(name, among=options)
            remedy = f"did you mean --{meant}?" if meant else "write a field of the recipe as --TABLE.FIELD VALUE"
            raise UserError(f"--{dashed}: no such option; {remedy}")
        if not equals:
            if not rest or rest[0].startswith("--"):
                raise UserError(f"--{dashed}: expected a value after it, got none; write --{dashed} VALUE")
            value = rest.pop(0)
        result.append((name, value))
    return result
