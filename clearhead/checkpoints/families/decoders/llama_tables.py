"""Llama's blocks under other names and defaults: Seed-OSS, Helium and ERNIE 4.5 (neighbours rotate), CWM (windows),
EXAONE 4 (a norm after each branch, positions in layers with a window), Ministral and Jais 2.
"""

from dataclasses import replace
from typing import Any

from clearhead.checkpoints.families import layered
from clearhead.checkpoints.families.decoders.cohere import rules as neighbour_rules
from clearhead.checkpoints.families.decoders.llama import BIASES, CONSTANTS, heads, rules, sizes
from clearhead.checkpoints.families.decoders.llama_kin import UNGATED
from clearhead.checkpoints.families.decoders.olmo import rules as branch_rules
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.rotary import modern, rotary
from clearhead.checkpoints.families.shared import LOCAL, MOST_LAYERS, by_layer_types
from clearhead.checkpoints.weights.fields import Values, inherited, same

# ByteDance 2025.
SEED_OSS = Family(
    model_type="seed_oss",
    constants=CONSTANTS | {"decoder.embed_dropout": 0.0},
    fields=(
        *sizes(
            vocab_size=155_136,
            intermediate_size=27_648,
            layers=64,
            n_heads=80,
            kv_heads=8,
            head_dim=128,
            attn_dropout=0.1,
            max_length=524_288,
        ),
        inherited("attention_bias", "decoder.qkv_bias", of="bias", default=True),
        inherited("attention_out_bias", "decoder.out_bias", of="bias", default=False),
        BIASES[1],
        same("residual_dropout", "decoder.dropout", default=0.1),
    ),
    rules=rules,
    heads=heads("SeedOss"),
    modernize=modern,
)

# Kyutai 2025. Its output matrix of attention has no bias and the width of the network.
HELIUM = Family(
    model_type="helium",
    constants=CONSTANTS,
    fields=(
        *sizes(
            vocab_size=48_000,
            hidden_size=2560,
            intermediate_size=7040,
            layers=24,
            n_heads=20,
            kv_heads=20,
            head_dim=128,
            eps=1e-8,
            angles=rotary(max_length=4096, theta=100_000.0),
        ),
        inherited("attention_bias", "decoder.qkv_bias", of="bias", default=False),
        BIASES[1],
    ),
    rules=neighbour_rules,
    heads=heads("Helium")[:4],
    modernize=modern,
)

# Baidu 2025.
ERNIE_4_5 = Family(
    model_type="ernie4_5",
    constants=CONSTANTS,
    fields=(
        *sizes(
            vocab_size=103_424,
            hidden_size=1024,
            intermediate_size=3072,
            layers=18,
            n_heads=16,
            kv_heads=2,
            head_dim=128,
            eps=1e-5,
            angles=rotary(max_length=131_072, theta=500_000.0),
        ),
        inherited("use_bias", "decoder.qkv_bias", "decoder.out_bias", "decoder.ffn_bias", of="bias", default=False),
    ),
    rules=neighbour_rules,
    heads=heads("Ernie4_5", tied=True)[:2],
    modernize=modern,
)

# --- layers with a window ----------------------------------------------------------------------------------------


def _rotated(_: Any, values: Values) -> list[int] | None:
    """With a window somewhere, the layers without one have no positions."""
    local = layered.local(values, 4)
    return None if values["sliding_window"] is None or len(local) == values["num_hidden_layers"] else local


def _as_said(window: int | None, _: Values) -> int | None:
    return window


# LG AI Research 2025.
EXAONE_4 = Family(
    model_type="exaone4",
    constants=CONSTANTS | {"decoder.norm_place": "branch", "decoder.qk_norm": True},
    fields=(
        *sizes(vocab_size=102_400, intermediate_size=16_384, kv_heads=32, eps=1e-5, max_length=2048),
        *(replace(one, write=_as_said) if one.theirs == "sliding_window" else one for one in layered.windows(every=4)),
        by_layer_types("rotary_layers", _rotated),
    ),
    rules=branch_rules,
    heads=heads("Exaone4"),
    modernize=modern,
)


def _ministral_kinds(document: dict[str, Any]) -> dict[str, Any]:
    """Where no list says otherwise, every layer has the window."""
    document = modern(document)
    if document.get("layer_types") is None:
        n = document.get("num_hidden_layers", 32)
        kind = "full_attention" if document.get("sliding_window", 4096) is None else LOCAL
        document["layer_types"] = [kind] * min(n, MOST_LAYERS) if type(n) is int else None
    return document


# Mistral AI 2024.
MINISTRAL = Family(
    model_type="ministral",
    constants=CONSTANTS,
    fields=(
        *sizes(intermediate_size=14_336, kv_heads=8, max_length=131_072),
        *layered.windows(every=1),
    ),
    rules=rules,
    heads=heads("Ministral"),
    modernize=_ministral_kinds,
)

# Inception 2025: LayerNorm, squared ReLU without a gate.
JAIS_2 = Family(
    model_type="jais2",
    constants=UNGATED,
    fields=(
        *sizes(
            vocab_size=150_272,
            hidden_size=3328,
            intermediate_size=26_624,
            n_heads=26,
            kv_heads=None,
            hidden_act="relu2",
            eps=1e-5,
            eps_field="layer_norm_eps",
            max_length=8192,
        ),
        inherited("attention_bias", "decoder.qkv_bias", "decoder.out_bias", of="bias", default=True),
        inherited("mlp_bias", "decoder.ffn_bias", of="bias", default=True),
    ),
    rules=rules,
    heads=heads("Jais2")[:2],
    modernize=modern,
)

ALL = (SEED_OSS, HELIUM, ERNIE_4_5, EXAONE_4, MINISTRAL, JAIS_2)
