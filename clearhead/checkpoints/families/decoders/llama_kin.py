"""Llama's relatives: multipliers (Granite), layers without positions (SmolLM3), LayerNorm and no gate (StarCoder2,
Nemotron), a part of each head rotated (StableLM).
"""

from collections.abc import Sequence
from typing import Any

from clearhead.checkpoints.families.decoders.decoder_heads import language, others
from clearhead.checkpoints.families.decoders.gpt_neox import parallel
from clearhead.checkpoints.families.decoders.llama import BIASES, CONSTANTS, heads, rules, sizes
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.rotary import modern, rotary
from clearhead.checkpoints.families.shared import MOST_LAYERS
from clearhead.checkpoints.weights.fields import Field, Only, Values, computed, ignored, implied, inherited, same
from clearhead.checkpoints.weights.mapping import Rule, rename
from clearhead.config import ModelConfig

# --- multipliers (IBM 2024) ------------------------------------------------------------------------------------------


def _factor(theirs: str, ours: str, *, inverse: bool = False) -> Field:
    """A factor, or with `inverse` a divisor; 1 for none."""

    def turned(value: float) -> float:
        return 1 / value if inverse else value

    return computed(
        theirs,
        ours,
        read=lambda value, _: None if value == 1.0 else turned(float(value)),
        write=lambda value, _: 1.0 if value is None else turned(value),
        default=1.0,
        like=1.0,
    )


GRANITE = Family(
    model_type="granite",
    constants=CONSTANTS,
    fields=(
        *sizes(intermediate_size=11_008, kv_heads=None, max_length=2048),
        *BIASES,
        _factor("embedding_multiplier", "decoder.input.factor"),
        _factor("residual_multiplier", "decoder.branch_scale"),
        computed(
            "attention_multiplier",
            "decoder.attn_scale",
            read=lambda scale, _: float(scale),
            write=lambda scale, ours: scale or _width(ours) ** -0.5,
            default=1.0,
            like=1.0,
        ),
        ignored("logits_scaling"),
    ),
    rules=rules,
    heads=(
        language("GraniteForCausalLM", "model.", _factor("logits_scaling", "head.scale", inverse=True), tied=False),
        *others("Granite", "model.", "bare"),
    ),
    modernize=modern,
)


def _width(ours: Values) -> int:
    stack = ours["decoder"]
    return stack["d_head"] or stack["d_model"] // stack["n_heads"]


# --- layers without positions (Bakouch et al. 2025) ------------------------------------------------------------------


def _rotary(said: Sequence[int] | None, values: Values) -> list[int] | None:
    """The layers that the list marks with 1; by default all but every `no_rope_layer_interval`-th."""
    n, every = values["num_hidden_layers"], values["no_rope_layer_interval"]
    marks = [int((i + 1) % every != 0) for i in range(min(n, MOST_LAYERS))] if said is None else [*said]
    if len(marks) != n:
        raise ValueError(f"{len(marks)} for num_hidden_layers={n}")
    return None if all(marks) else [i for i, mark in enumerate(marks) if mark]


def _marks(_: Any, ours: Values) -> list[int]:
    stack = ours["decoder"]
    layers = stack["rotary_layers"]
    return [int(layers is None or i in layers) for i in range(stack["n_layers"])]


def _full(values: Values) -> list[str]:
    return ["full_attention"] * min(values["num_hidden_layers"], MOST_LAYERS)


SMOLLM3 = Family(
    model_type="smollm3",
    constants=CONSTANTS,
    fields=(
        *sizes(
            vocab_size=128_256,
            hidden_size=2048,
            intermediate_size=11_008,
            layers=36,
            n_heads=16,
            kv_heads=4,
            angles=rotary(max_length=32_768, theta=2_000_000.0),
        ),
        *BIASES,
        computed("no_rope_layers", "decoder.rotary_layers", read=_rotary, write=_marks, default=None),
        computed("no_rope_layer_interval", write=lambda *_: 4, default=4, like=4),
        Only("use_sliding_window", False),
        implied(
            "layer_types",
            _full,
            write=lambda ours: ["full_attention"] * ours["decoder"]["n_layers"],
            what="which follows from use_sliding_window",
        ),
    ),
    rules=rules,
    heads=heads("SmolLM3", tied=True),
    modernize=modern,
)

# --- LayerNorm, no gate ----------------------------------------------------------------------------------------------

UNGATED = CONSTANTS | {"decoder.norm": "layer", "decoder.norm_bias": True, "decoder.gated": False}


def _starcoder_rules(config: ModelConfig) -> Sequence[Rule]:
    mlp = {"c_fc": "up", "c_proj": "down"}
    return (
        *(rule for rule in rules(config) if ".mlp." not in rule.theirs[0]),
        *(rename(f"layers.{{i}}.mlp.{a}.{{p}}", f"decoder.blocks.{{i}}.ffn.{b}.{{p}}") for a, b in mlp.items()),
    )


# Lozhkov et al. 2024.
STARCODER2 = Family(
    model_type="starcoder2",
    constants=UNGATED,
    fields=(
        *sizes(
            vocab_size=49_152,
            hidden_size=3072,
            intermediate_size=12_288,
            layers=30,
            n_heads=24,
            kv_heads=2,
            hidden_act="gelu_pytorch_tanh",
            eps=1e-5,
            eps_field="norm_epsilon",
            std=0.018042,
            max_length=4096,
        ),
        inherited("use_bias", "decoder.qkv_bias", "decoder.out_bias", "decoder.ffn_bias", of="bias", default=True),
        computed("sliding_window", "decoder.window", default=None),
        same("residual_dropout", "decoder.dropout", default=0.0),
        same("embedding_dropout", "decoder.embed_dropout", default=0.0),
        ignored("mlp_type", "norm_type"),
    ),
    rules=_starcoder_rules,
    heads=heads("Starcoder2", tied=True)[:4],
    modernize=modern,
)

# Parmar et al. 2024: squared ReLU, and norms that multiply by 1 + weight.
NEMOTRON = Family(
    model_type="nemotron",
    constants=UNGATED | {"decoder.norm_gain": "one_plus_weight"},
    fields=(
        *sizes(
            vocab_size=256_000,
            hidden_size=6144,
            intermediate_size=24_576,
            n_heads=48,
            kv_heads=None,
            hidden_act="relu2",
            eps=1e-5,
            eps_field="norm_eps",
            std=0.0134,
            angles=rotary(max_length=4096, fraction=0.5),
        ),
        *BIASES,
    ),
    rules=rules,
    heads=heads("Nemotron"),
    modernize=modern,
)

# --- a part of each head (Bellagente et al. 2024) --------------------------------------------------------------------

STABLELM = Family(
    model_type="stablelm",
    constants=CONSTANTS | {"decoder.norm": "layer", "decoder.norm_bias": True, "decoder.embed_dropout": 0.0},
    fields=(
        *sizes(
            vocab_size=50_304,
            hidden_size=2560,
            intermediate_size=6912,
            kv_heads=32,
            eps=1e-5,
            eps_field="layer_norm_eps",
            angles=rotary(max_length=4096, fraction=0.25),
        ),
        inherited("use_qkv_bias", "decoder.qkv_bias", of="bias", default=False),
        same("hidden_dropout", "decoder.dropout", default=0.0),
        parallel("one_norm", default=False),
        # With it, every head has a norm of its own.
        Only("qk_layernorm", False),
    ),
    rules=rules,
    heads=heads("StableLm")[:4],
    modernize=modern,
)
