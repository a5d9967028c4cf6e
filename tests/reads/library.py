"""The config fields that a class of the reference library reads, by its source."""

import re
from functools import cache
from typing import Any

from tests.reads.source import Place, definition, reached

SHARED = re.compile(
    r"^transformers\.(models\.(?!auto\.)|(configuration|masking|cache|pytorch|backbone|vision)_utils$|activations$"
    r"|modeling_(utils|rope_utils|layers|attn_mask_utils|flash_attention_utils)$|integrations\.(sdpa|moe|heterogen)"
    r"|utils\.generic$|fusion_mapping)"
)
"""The modules that compute, or that make a config. Others store, split over devices, quantize, train or generate."""
ROTARY = "transformers.modeling_rope_utils"
BASES = ("transformers.modeling_utils", "transformers.configuration_utils")
"""They mention rotary embeddings for whichever class has some: only a class's own module tells whether it does."""


MIXIN = (ROTARY, "RotaryEmbeddingConfigMixin")


@cache
def fields(model: Any) -> dict[str, frozenset[str]]:
    """The fields of config.json that a class reads, with the modules; `rope_parameters.factor` is one in a table."""
    own = _places(model.config_class)
    places = reached(_places(model) | own, _follow)
    if any(module == ROTARY for module, _ in places):
        places.add(MIXIN)
    found, methods = dict[str, set[str]](), set(definition(MIXIN).own)
    for place in places:
        read = definition(place)
        if not read.is_config or place in own or place == MIXIN:
            methods |= read.own
            for name in read.reads:
                found.setdefault(name, set()).add(place[0])
    return {
        name: frozenset(modules) for name, modules in found.items() if name not in methods and not name.startswith("_")
    }


def _places(kind: type) -> set[Place]:
    """A class and its bases. That of rotary embeddings is looked at only where some are used."""
    return {
        (one.__module__, one.__name__)
        for one in kind.__mro__
        if one.__module__.startswith("transformers.") and one.__module__ != ROTARY
    }


def _follow(place: Place, found: Place) -> bool:
    return bool(SHARED.search(found[0])) and not (place[0] in BASES and found[0] == ROTARY)
