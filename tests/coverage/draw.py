"""Random configs: every field that the reference's config class knows, at values that it may have."""

import dataclasses
import random
import re
import tomllib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.parity.cases import with_none
from tests.parity.harness import Case
from tests.reads import library as reads

ACTIVATIONS = ("relu", "gelu", "gelu_new", "silu", "swish", "gelu_pytorch_tanh", "gelu_fast", "quick_gelu", "relu2")
ACTIVATIONS += ("tanh", "relu6", "mish", "gelu_python", "sigmoid", "linear", "gelu_10", "laplace", "leaky_relu")
LAYERS = (
    "full_attention",
    "sliding_attention",
    "full_attention",
    "sliding_attention",
    "chunked_attention",
    "global",
    "local",
)
_VALUES = with_none(tomllib.loads(Path(__file__).with_name("values.toml").read_text(encoding="utf-8")))
WORDS: Mapping[str, list[str]] = _VALUES["words"]
"""Texts that are no names of activations, by field."""
EXTRAS: Mapping[str, list[Any]] = _VALUES["extras"]
"""Fields that many configs have, with values; also where the class does not name them but shared code reads them."""
LEFT_OUT = re.compile(
    r"^(_.*|architectures|model_type|transformers_version|name_or_path|dtype|torch_dtype|return_dict|output_.*|id2label"
    r"|label2id|attn_implementation|bos_token_id|eos_token_id|sep_token_id|cls_token_id|unk_token_id|mask_token_id"
    r"|.*start_token_id|forced_.*|task_specific_params|tokenizer_class|is_encoder_decoder|per_layer_config)$"
)
"""What decides no number, or which network it is at all."""


ANY = (1, 2, 3, 8, 0.5, True, "x")
"""Values of a field of which only its name is known."""
LENGTH = re.compile(r"^(max_seq_len|max_.*position.*|n_positions|n_ctx|seq_length)$")
"""Lengths, of which none is below that of the texts: beyond its length a model is not defined."""


def known_fields(case: Case) -> dict[str, Any]:
    """Every field that the class of the config knows, its other names included, with its value in this case."""
    import transformers

    config_class = getattr(transformers, case.architecture).config_class
    config = config_class(**deepcopy(case.config))
    found = {**config.to_dict(), **{name: getattr(config, name, None) for name in config.attribute_map}}
    return {name: value for name, value in found.items() if not LEFT_OUT.match(name)}


def hints(case: Case) -> dict[str, str]:
    """The annotation of each field of the config class."""
    import transformers

    config_class = getattr(transformers, case.architecture).config_class
    return {field.name: str(field.type) for field in dataclasses.fields(config_class)}


def others(name: str, value: Any, hint: str = "") -> list[Any]:
    """Other values that a field may have."""
    if name in ("rope_parameters", "rope_scaling"):
        return angles(value)
    if name in WORDS:
        return [word for word in WORDS[name] if word != value]
    if name in EXTRAS and not isinstance(value, int | float):
        return [one for one in EXTRAS[name] if one != value]
    literal = re.findall(r"Literal\[(.*?)\]", hint)
    if literal:
        return [word for word in re.findall(r"[\"'](\w+)[\"']", literal[0]) if word != value]
    match value:
        case bool():
            return [not value]
        case int() if LENGTH.search(name):
            return sorted({8, 9, 16, value + 1, 2 * value} - {value})
        case int():
            return sorted({0, 1, 2, 3, 5, value + 1, 2 * value, value // 2, max(value - 1, 0)} - {value})
        case float():
            return sorted({0.0, 0.3, 1.0, 2.0, 3 * value, value / 2 + 0.1} - {value})
        case str():
            return [word for word in ACTIVATIONS if word != value] if looks_active(name, value) else []
        case dict():
            return [{**value, key: one} for key, inner in value.items() for one in others(str(key), inner)[:3]]
        case [*items]:
            return lists(items)
        case _:
            return unset(name, hint)


def looks_active(name: str, value: str) -> bool:
    """Whether a text is the name of an activation."""
    return value in ACTIVATIONS or "act" in name.split("_") or "activation" in name


def unset(name: str, hint: str) -> list[Any]:
    """Values for a field that is null."""
    found: list[Any] = []
    if "bool" in hint:
        found += [True, False]
    if "int" in hint:
        found += [1, 2, 3, 8]
    if "float" in hint:
        found += [0.5, 2.0]
    if "str" in hint and "list" not in hint:
        found += [*ACTIVATIONS[:4]]
    return found


def lists(items: Sequence[Any]) -> list[Any]:
    """Other lists of the same kind."""
    if items and all(isinstance(item, str) for item in items):
        kinds = list(dict.fromkeys([*items, *LAYERS]))
        one_changed = [[kind, *items[1:]] for kind in kinds] + [[*items[:-1], kind] for kind in kinds]
        return [found for found in [*one_changed, [kinds[-1]] * len(items), [kinds[0]] * len(items)] if found != items]
    if items and all(isinstance(item, int | float) and not isinstance(item, bool) for item in items):
        return [[items[0] + 1, *items[1:]], [items[0]] * len(items), [*items, items[-1]], items[:-1]]
    return [[0], [1]] if not items else []


def angles(value: Any) -> list[Any]:
    """Tables of angles of every type that the reference has; one for each kind of layer where it has several."""
    if isinstance(value, dict) and value and all(isinstance(inner, dict) for inner in value.values()):
        return [{**value, kind: one} for kind in value for one in angles(value[kind])]
    theta = {"rope_theta": 10.0}
    scaled = {**theta, "factor": 2.5}
    length = {"original_max_position_embeddings": 8}
    found: list[dict[str, Any]] = [
        {"rope_type": "default", **theta},
        {"rope_type": "default", **theta, "partial_rotary_factor": 0.5},
        {"rope_type": "linear", **scaled},
        {"rope_type": "dynamic", **scaled},
        {"rope_type": "dynamic", **scaled, **length},
        {"rope_type": "yarn", **scaled, **length},
        {"rope_type": "yarn", **scaled},
        {"rope_type": "yarn", **scaled, **length, "truncate": False},
        {"rope_type": "yarn", **scaled, **length, "mscale": 1.3, "mscale_all_dim": 0.7},
        {"rope_type": "yarn", **scaled, **length, "mscale": 1.3},
        {"rope_type": "yarn", **scaled, **length, "attention_factor": 1.4, "beta_fast": 6.0, "beta_slow": 0.5},
        {"rope_type": "llama3", **scaled, **length, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        {
            "rope_type": "longrope",
            **theta,
            **length,
            "short_factor": [1.0, 1.5, 2.0, 3.0],
            "long_factor": [2.0, 3.0, 5.0, 8.0],
        },
        {"rope_type": "longrope", **scaled, "short_factor": [1.0, 1.5, 2.0, 3.0], "long_factor": [2.0, 3.0, 5.0, 8.0]},
        {"rope_type": "proportional", **theta, "partial_rotary_factor": 0.5},
        {"type": "linear", **scaled},
    ]
    if isinstance(value, dict):
        found += [{**value, **one} for one in ({"rope_theta": 7.0}, {"partial_rotary_factor": 0.25})]
    return [one for one in found if one != value]


def spelled(table: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """A table of angles as newer and as older configs have it: what belongs in it may stand beside it."""
    table, beside = dict(table), dict[str, Any]()
    if chance.random() < 0.5:
        beside |= {name: table.pop(name) for name in ("rope_theta", "partial_rotary_factor") if name in table}
    if chance.random() < 0.5:
        beside["original_max_position_embeddings"] = chance.choice((2, 8, 64))
        if chance.random() < 0.5:
            table.pop("original_max_position_embeddings", None)
    if "rope_type" in table and chance.random() < 0.3:
        table["type"] = table.pop("rope_type")
    return beside | {chance.choice(("rope_parameters", "rope_scaling")): table}


def placed(case: Case, changes: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The changes of a config with another one within it: some there, some beside it."""
    whole = changes.get("text_config", case.config.get("text_config"))
    if not isinstance(whole, dict):
        return changes
    inner = {name: value for name, value in changes.items() if name != "text_config" and chance.random() < 0.6}
    beside = {name: value for name, value in changes.items() if name not in inner}
    return {**beside, "text_config": {**whole, **inner}}


def drawn(case: Case, chance: random.Random) -> tuple[Case, dict[str, Any]]:
    """A case with one to five fields changed, and the changes: those of its class, and those that code reads."""
    import transformers

    fields, types = known_fields(case), hints(case)
    read = [name for name in reads.fields(getattr(transformers, case.architecture)) if "." not in name]
    read = [name for name in read if not LEFT_OUT.match(name)]
    changes: dict[str, Any] = {}
    if chance.random() < 0.25 and "rope_parameters" in {*fields, *read}:
        changes |= spelled(chance.choice(angles(fields.get("rope_parameters"))), chance)
    for _ in range(chance.choice((1, 1, 2, 2, 3, 4, 5))):
        name = chance.choice([*fields, *chance.sample([*EXTRAS], 3), *chance.sample(sorted(read), 6)])
        values = [*others(name, fields.get(name), types.get(name, "")), *(EXTRAS.get(name, ()))]
        values += ANY if name not in fields and not values else ()
        if values:
            changes[name] = chance.choice(values)
    changes = placed(case, changes, chance)
    return replace(case, config={**case.config, **changes}, variant="random"), changes
