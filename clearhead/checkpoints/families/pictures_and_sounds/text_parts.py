"""Models of pictures or sounds whose text model opens alone, as text_parts.toml says. Imports no torch."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pkgutil import resolve_name
from typing import Any

from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.pictures_and_sounds.pictures import text_part
from clearhead.checkpoints.families.shared import PICTURES, SOUNDS
from clearhead.checkpoints.weights.mapping import Rule
from clearhead.config import ModelConfig

HERE = "clearhead.checkpoints.families"
TABLES = tomllib.loads(files(HERE).joinpath("text_parts.toml").read_text(encoding="utf-8"))


def __getattr__(name: str) -> tuple[Family, ...]:
    """The families of a model type, one for each kind of text model."""
    if name not in TABLES:
        raise AttributeError(name)
    table = TABLES[name]
    architecture, *also = table["class"]
    found = (
        text_part(
            resolve_name(f"{HERE}.{text}"),
            name,
            architecture,
            table["beside"],
            tied=not table.get("untied", False),
            either=table.get("either", False),
            reads=SOUNDS if table.get("sounds") else PICTURES,
        )
        for text in table["texts"]
    )
    return tuple(_called(_by_default(one, table.get("defaults", {})), also, table.get("spelled")) for one in found)


def _by_default(family: Family, values: Mapping[str, Any]) -> Family:
    """The family whose text_config has these values of fields that a config leaves out."""

    def modernize(document: dict[str, Any]) -> dict[str, Any]:
        text = document.get("text_config")
        own = {"text_config": {**values, **text}} if isinstance(text, Mapping) else {}
        return family.modernize({**document, **own})

    return replace(family, modernize=modernize)


def _called(family: Family, also: Sequence[str], spelled: Sequence[str] | None) -> Family:
    """The family whose class has other names, too, and maybe its tensors."""
    heads = (replace(family.heads[0], also=tuple(also)),)
    if spelled is None:
        return replace(family, heads=heads)
    there, here = spelled

    def rules(config: ModelConfig) -> Sequence[Rule]:
        own = family.rules(config)
        others = (replace(one, theirs=tuple(name.replace(there, here) for name in one.theirs)) for one in own)
        return (*own, *(other for one, other in zip(own, others, strict=True) if one != other))

    return replace(family, heads=heads, rules=rules)
