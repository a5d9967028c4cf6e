"""The names of a recipe's fields, and the nearest to a name that does not exist. Imports no torch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, Self

from pydantic import BaseModel

Schema = dict[str, Any]

DEEPEST = 5
"""Largest number of names in a dotted field."""


@dataclass(frozen=True)
class Names:
    """Every field of a recipe with its tables, as the command line sets it: training.clip, ..."""

    fields: tuple[str, ...]

    @classmethod
    def of(cls, recipes: Iterable[Schema], model: Schema, *, given: Mapping[str, Any] | None = None) -> Self:
        """The fields of these schemas; a recipe sets those of a model's parts under `model`.

        `given` are the tables of a recipe: then the fields are those that it can set without another `kind`.
        """
        names: dict[str, None] = {}
        for recipe in recipes:
            _collect(recipe, recipe, (), names, given)
        parts = {"stacks": "decoder", "encoder": "encoder", "decoder": "decoder", "head": "head", "init": "init"}
        for table, part in parts.items():
            _collect(model["properties"][part], model, ("model", table), names, None)
        return cls(tuple(names))

    @property
    def tables(self) -> set[str]:
        """The tables, and the fields that are in none."""
        return {field.partition(".")[0] for field in self.fields}

    def nearest(self, name: str, *, among: Sequence[str] = ()) -> str | None:
        """The nearest name: in `among` or of a field by its whole path, else of a field by its last part."""
        close = get_close_matches(name, [*among, *self.fields], n=1)
        return close[0] if close else self.ending(name)

    def ending(self, name: str) -> str | None:
        """The least nested field whose last part equals that of `name`, or is close to it; else None."""
        ends: dict[str, str] = {}
        for field in sorted(self.fields, key=lambda field: field.count(".")):
            ends.setdefault(field.rpartition(".")[2], field)
        close = get_close_matches(name.rpartition(".")[2], ends, n=1, cutoff=0.8)
        return ends[close[0]] if close else None


@cache
def schema_of(config: type[BaseModel]) -> Schema:
    """The JSON Schema of a config type. Computed once, since it takes a tenth of a second; do not change it."""
    return config.model_json_schema()


def options(node: Schema, schema: Schema) -> list[Schema]:
    """The alternatives that a node of a schema stands for."""
    if "$ref" in node:
        return options(schema["$defs"][node["$ref"].rsplit("/", 1)[1]], schema)
    below = [o for key in ("anyOf", "oneOf", "allOf") for part in node.get(key, ()) for o in options(part, schema)]
    return below or [node]


def tag(node: Schema, name: str = "kind") -> str | None:
    """What tells an alternative from the others."""
    return node.get("properties", {}).get(name, {}).get("const")


def _collect(
    node: Schema, schema: Schema, path: tuple[str, ...], names: dict[str, None], given: Mapping[str, Any] | None
) -> None:
    """Adds the fields below a node. Of alternatives, those of the `kind` in `given`, or all if that is None."""
    below = options(node, schema) if len(path) < DEEPEST else []
    if given is not None and sum(tag(option) is not None for option in below) > 1:
        below = [option for option in below if tag(option) == given.get("kind")]
    for option in below:
        for name, inner in option.get("properties", {}).items():
            names[".".join((*path, name))] = None
            table = None if given is None else given.get(name)
            _collect(inner, schema, (*path, name), names, None if given is None else _table(table))


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
