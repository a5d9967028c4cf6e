"""Named architectures and the families of the Hugging Face libraries. Each family is data in a module.

A family's module is imported when a config names its model type, or when all families are asked for. Imports no torch.
"""

import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import Any

from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.unknown import unknown
from clearhead.checkpoints.weights.quantization import method_of
from clearhead.config import ModelConfig
from clearhead.errors import UserError
from clearhead.extensions import extensions, load_extension, parts

__all__ = ["FAMILIES", "Family", "HeadMap", "families", "family_for", "family_named", "family_of", "preset", "presets"]


def _table(file: str) -> dict[str, Any]:
    """The content of a file beside this one."""
    return tomllib.loads(resources.files(__name__).joinpath(file).read_text(encoding="utf-8"))


FAMILIES: Mapping[str, str] = {
    **{model_type: f"{__name__}.{place}" for model_type, place in _table("families.toml").items()},
    **{model_type: f"{__name__}.variants:{model_type.replace('-', '_')}" for model_type in _table("variants.toml")},
    **{name: f"{__name__}.pictures_and_sounds.text_parts:{name}" for name in _table("text_parts.toml")},
}
"""The place of each family, or of the families of one model type, by model type; extensions add theirs.

If several families can express a network, the first is written.
"""


def _of_type(model_type: str) -> tuple[Family, ...]:
    """The families of a model type."""
    found = load_extension("families", model_type, parts("families", FAMILIES)[model_type])
    return found if isinstance(found, tuple) else (found,)


def _in_order(first: str | None = None) -> Iterator[Family]:
    """Every family, those of this model type first."""
    for model_type in sorted(parts("families", FAMILIES), key=lambda name: name != first):
        yield from _of_type(model_type)


@cache
def families() -> tuple[Family, ...]:
    """Every architecture that can be read and written."""
    return tuple(_in_order())


def family_of(document: Mapping[str, Any], *, where: str) -> Family:
    """The family that a config names. Raises UserError if it, or how its weights are quantized, is unknown."""
    family = family_named(document)
    method_of(document, where=where, but=() if family is None else family.packings)
    if family is None:
        raise unknown(document, families()).error(where)
    return family


def family_named(document: Mapping[str, Any]) -> Family | None:
    """The family that a config names, however its weights are quantized; None if it is unknown."""
    model_type = document.get("model_type")
    if not isinstance(model_type, str) or model_type not in parts("families", FAMILIES):
        return None
    return next((family for family in _of_type(model_type) if family.reads(document)), None)


def family_for(config: ModelConfig, prefer: str | None = None) -> tuple[Family, HeadMap, dict[str, Any]] | None:
    """The first family that can express this network, with its head and config. `prefer` is tried first."""
    for family in _in_order(prefer):
        written = family.write(config)
        if written is not None:
            document, head = written
            return family, head, document
    return None


@cache
def _own_presets() -> Mapping[str, ModelConfig]:
    return {name: ModelConfig.model_validate(table) for name, table in _table("presets.toml").items()}


def presets() -> dict[str, ModelConfig]:
    """Every preset by name: those of presets.toml, and those of families of other packages."""
    added = [family.presets for name in extensions("families") for family in _of_type(name)]
    return {name: config for named in (_own_presets(), *added) for name, config in named.items()}


def preset(name: str) -> ModelConfig:
    """The preset of this name. Raises UserError with the nearest name if there is none."""
    known = presets()
    if name not in known:
        nearest = get_close_matches(name, known, n=1)
        remedy = nearest[0] if nearest else f"one of {', '.join(sorted(known))}"
        raise UserError(f"preset: expected the name of an architecture, got {name!r}; try {remedy}")
    return known[name]
