"""Families that are another one with other names, defaults and settings, as variants.toml says. Imports no torch."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pkgutil import resolve_name
from typing import Any

from clearhead.checkpoints.families.family import Family, HeadMap, Rules
from clearhead.checkpoints.families.mixtures.mixtures import further
from clearhead.checkpoints.families.shared import PICTURES, beside_it, bias, neighbours, with_defaults, without
from clearhead.checkpoints.weights.fields import Alias, FieldRule, FieldRules, ignored, only, same
from clearhead.checkpoints.weights.mapping import Rule, rename
from clearhead.config import ModelConfig

HERE = "clearhead.checkpoints.families"
_TABLES = tomllib.loads(files(HERE).joinpath("variants.toml").read_text(encoding="utf-8"))
TABLES: Mapping[str, tuple[str, Any]] = {name.replace("-", "_"): (name, table) for name, table in _TABLES.items()}
"""Each model type with what it changes, by the name that it has as an attribute of this module."""


def __getattr__(name: str) -> Family:
    """The family of a model type."""
    if name not in TABLES:
        raise AttributeError(name)
    return variant(*TABLES[name])


def variant(model_type: str, table: Mapping[str, Any]) -> Family:
    """The family that differs from `like` as a table says; variants.toml tells what stands in it."""
    base: Family = resolve_name(f"{HERE}.{table['like']}")
    older = {"rope_theta": table["theta"]} if "theta" in table else {}
    plain = min((head.architecture for head in base.heads if head.architecture.endswith("Model")), key=len)
    old, kinds = plain.removesuffix("Model"), table.get("classes")
    beside = (beside_it(*table["beside"]),) if "beside" in table else ()

    def called(text: str) -> str:
        for there, here in table.get("names", {}).items():
            text = text.replace(there, here)
        return text

    def renaming(rules: Rules) -> Rules:
        return lambda config: [replace(rule, theirs=tuple(map(called, rule.theirs))) for rule in rules(config)]

    def own_rules(config: ModelConfig) -> Sequence[Rule]:
        own = renaming(base.rules)(config)
        return (
            *(rename(f"{there}.{{p}}", f"{here}.{{p}}") for there, here in table.get("modules", {}).items()),
            *map(further, table.get("further", ())),
            *(neighbours(own, config) if table.get("pairs") else own),
        )

    def changed(fields: Sequence[FieldRule]) -> FieldRules:
        return with_defaults(without(fields, *table.get("without", ())), **table.get("defaults", {}))

    def modernize(document: dict[str, Any]) -> dict[str, Any]:
        theta = {"rope_theta": document.pop(table["base"])} if table.get("base") in document else {}
        return base.modernize({**older, **theta, **document})

    def headed(head: HeadMap) -> HeadMap:
        return replace(
            head,
            architecture=table["name"] + head.architecture.removeprefix(old),
            also=tuple(table.get("called", ())) if head is base.heads[0] else (),
            fields=changed(head.fields),
            rules=lambda config: (*renaming(head.rules)(config), *beside),
            prefix=called(head.prefix),
            names={called(there): ours for there, ours in head.names.items()},
        )

    return replace(
        base,
        model_type=table.get("model_type", model_type),
        constants={**base.constants, **table.get("settings", {})},
        fields=(
            *changed(base.fields),
            *(
                same(theirs, ours, default=default[0] if default else None)
                for theirs, (ours, *default) in table.get("fields", {}).items()
            ),
            *(bias(theirs, *own, default=default) for theirs, (default, *own) in table.get("biases", {}).items()),
            *(Alias(*pair) for pair in table.get("also", {}).items()),
            *only(**table.get("only", {})),
            ignored(*table.get("ignored", ())),
        ),
        rules=own_rules,
        heads=tuple(
            headed(head) for head in base.heads if kinds is None or head.architecture.removeprefix(old) in kinds
        ),
        modernize=modernize,
        read_only=table.get("read_only", False),
        without=PICTURES if beside else "",
    )
