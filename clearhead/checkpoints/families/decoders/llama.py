"""Llama (Touvron et al. 2023), and decoders that differ in one mechanism: Arcee, Mistral, Qwen2 and Qwen3."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import JsonValue

from clearhead.checkpoints.families.angles import Modernize, modern, rotary
from clearhead.checkpoints.families.family import Family, HeadMap, Rules
from clearhead.checkpoints.families.shared import (
    FULL,
    LOCAL,
    MOST_LAYERS,
    NAMES,
    TAGGING_DROPOUT,
    bias,
    by_layer_types,
    decoder_heads,
    local_layers,
    sizes,
    span,
    tags,
    width_of,
    window_layers,
    windowed,
    without,
)
from clearhead.checkpoints.weights.fields import Field, FieldRule, FieldRules, Only, Values, computed, ignored, same
from clearhead.checkpoints.weights.mapping import Rule, ignore, modules
from clearhead.config import ModelConfig
from clearhead.errors import refuse

LLAMA_CONSTANTS = {"decoder.norm": "rms", "decoder.gated": True, "decoder.bias": False}


def llama_sizes(
    *,
    num_key_value_heads: int | None = None,
    head_dim: int | None = None,
    max_length: int = 0,
    angles: Sequence[FieldRule] = (),
    **defaults: JsonValue,
) -> FieldRules:
    """The fields that all of these families share. The arguments are a family's defaults for absent fields.

    `angles` are the fields of its positions, by default whole rotary heads for texts of `max_length`.
    """
    base: dict[str, JsonValue] = {
        "vocab_size": 32_000,
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "attention_dropout": 0.0,
    }
    if not defaults.keys() & {*NAMES["norm_eps"]}:
        base["rms_norm_eps"] = 1e-6
    return (
        *sizes("decoder", **{**base, **defaults}),
        _width(
            "num_key_value_heads",
            "decoder.n_kv_heads",
            there=lambda theirs: theirs["num_attention_heads"],
            here=lambda ours: ours["n_heads"],
            default=num_key_value_heads,
        ),
        _width(
            "head_dim",
            "decoder.d_head",
            there=lambda theirs: theirs["hidden_size"] // (theirs["num_attention_heads"] or 1),
            here=width_of,
            default=head_dim,
        ),
        *(angles or rotary(max_length=max_length)),
        Only("pretraining_tp", 1),
        Only("rope_interleaved", False),
        ignored("is_llama_config", "max_sequence_length", "transformers.js_config", "unsloth_*"),
    )


def _width(
    theirs: str, ours: str, *, there: Callable[[Values], int], here: Callable[[Values], int], default: int | None
) -> Field:
    """A width that is None in our config if it follows from the other fields, and is always written."""
    return computed(
        theirs,
        ours,
        read=lambda value, values: None if value == there(values) else value,
        write=lambda value, config: value or here(config["decoder"]),
        default=default,
    )


BIASES = (bias("attention_bias", "qkv", "out"), bias("mlp_bias", "ffn"))
LLAMA_NAMES = {
    "embed_tokens": "embed.tokens",
    "norm": "final_norm",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn.q",
    "self_attn.k_proj": "attn.k",
    "self_attn.v_proj": "attn.v",
    "self_attn.o_proj": "attn.out",
    "self_attn.q_norm": "attn.q_norm",
    "self_attn.k_norm": "attn.k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn.gate",
    "mlp.up_proj": "ffn.up",
    "mlp.down_proj": "ffn.down",
}
"""Their modules -> ours. The gate, biases and norms of heads exist only if the config has them."""


def llama_rules(_: ModelConfig) -> Sequence[Rule]:
    """Llama's names."""
    return renamed({})


def renamed(names: Mapping[str, str], *, but: tuple[str, ...] = ()) -> Sequence[Rule]:
    """Llama's names, but for modules of ours that begin as `but` says, and for those that `names` gives."""
    replaced = {*names.values()}
    kept = {there: ours for there, ours in LLAMA_NAMES.items() if ours not in replaced and not ours.startswith(but)}
    unread = ignore("rotary_emb.inv_freq", "layers.{i}.self_attn.rotary_emb.inv_freq")
    return (*modules("decoder", "layers.{i}", {**kept, **names}), unread)


def llama_heads(name: str, *, span_prefix: str = "transformer.", tied: bool = False) -> tuple[HeadMap, ...]:
    """The heads that each of these families has: words, none, classes, tags, spans."""
    bias = same("token_classification_bias", "head.bias", default=True)
    return (
        *decoder_heads(name, "model.", "bare class", tied=tied),
        tags(f"{name}ForTokenClassification", "model.", TAGGING_DROPOUT, bias, output="score"),
        span(f"{name}ForQuestionAnswering", prefix=span_prefix),
    )


def llama_like(
    model_type: str,
    name: str,
    *fields: FieldRule,
    constants: Mapping[str, Any] | None = None,
    rules: Rules = llama_rules,
    n_classes: int | None = None,
    tied: bool = False,
    span_prefix: str = "transformer.",
    words: HeadMap | None = None,
    modernize: Modernize = modern,
    read_only: bool = False,
    leave_out: tuple[str, ...] = (),
    **defaults: Any,
) -> Family:
    """A family of Llama's blocks, with its own fields, settings and defaults, and the first `n_classes` classes.

    `words` is its class that writes words if it is not Llama's, and `leave_out` are fields that it does not have.
    """
    own, *others = llama_heads(name, tied=tied, span_prefix=span_prefix)[:n_classes]
    return Family(
        model_type=model_type,
        constants={**LLAMA_CONSTANTS, **(constants or {})},
        fields=(*without(llama_sizes(**defaults), *leave_out), *fields),
        rules=rules,
        heads=(words or own, *others),
        modernize=modernize,
        read_only=read_only,
    )


# Early conversions spell the class in other ways.
LLAMA = llama_like(
    "llama",
    "Llama",
    *BIASES,
    words=replace(llama_heads("Llama")[0], also=("LLaMAForCausalLM", "LlaMAForCausalLM")),
    intermediate_size=11_008,
    max_length=2048,
)

# A query reaches the last `sliding_window` keys, including its own (Jiang et al. 2023, 2).
MISTRAL = llama_like(
    "mistral",
    "Mistral",
    computed("sliding_window", "decoder.window", default=4096, null=True),
    span_prefix="model.",
    intermediate_size=14_336,
    num_key_value_heads=8,
    max_length=131_072,
)


# --- Qwen2 (Yang et al. 2024) and Qwen3 (2025) ---------------------------------------------------------------------

IsLocal = Callable[[int, int], bool]
"""Whether a layer has a window, by its number and `max_window_layers`, if layer_types does not say."""


def _qwen_local(values: Values, is_local: IsLocal) -> list[int]:
    """The layers with a window, named by layer_types or otherwise by their numbers."""
    if not values["use_sliding_window"] or values["sliding_window"] is None:
        if LOCAL in (values["layer_types"] or ()):
            raise refuse("", f"a sliding_window for its {LOCAL}", "none", f"try {FULL}")
        return []
    n_layers, kinds = values["num_hidden_layers"], values["layer_types"]
    if kinds is None:
        return [i for i in range(min(n_layers, MOST_LAYERS)) if is_local(i, values["max_window_layers"])]
    return local_layers(kinds, n_layers)


def _first(_: Any, ours: Values) -> int:
    """The first layer with a window. Older versions of the library read nothing else."""
    return min(windowed(ours["decoder"]), default=ours["decoder"]["n_layers"])


USES_WINDOW = computed("use_sliding_window", write=lambda _, ours: ours["decoder"]["window"] is not None, default=False)


def qwen_windows(is_local: IsLocal) -> FieldRules:
    """The layers with a window, and its reach."""

    def layers(_: Any, values: Values) -> list[int] | None:
        return window_layers(_qwen_local(values, is_local), values["num_hidden_layers"])

    def reach(said: int | None, values: Values) -> int | None:
        return said if _qwen_local(values, is_local) else None

    return (
        computed("max_window_layers", write=_first, default=28),
        by_layer_types("window_layers", layers),
        computed("sliding_window", "decoder.window", read=reach, default=4096, null=True),
        USES_WINDOW,
        Only("use_mrope", False),
    )


WINDOW = qwen_windows(lambda i, first: i >= first)

QWEN2 = llama_like(
    "qwen2",
    "Qwen2",
    *WINDOW,
    constants={"decoder.qkv_bias": True},
    vocab_size=151_936,
    intermediate_size=22_016,
    num_key_value_heads=32,
    max_length=32_768,
)

QWEN3 = llama_like(
    "qwen3",
    "Qwen3",
    BIASES[0],
    *WINDOW,
    constants={"decoder.qk_norm": True},
    vocab_size=151_936,
    intermediate_size=22_016,
    num_key_value_heads=32,
    head_dim=128,
    max_length=32_768,
)
