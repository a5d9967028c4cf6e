"""Llama (Touvron et al. 2023), and decoders that differ in one mechanism: Arcee, Mistral, Qwen2 and Qwen3."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from clearhead.checkpoints.families.angles import modern, rotary
from clearhead.checkpoints.families.family import Family, HeadMap, Rules
from clearhead.checkpoints.families.shared import (
    ACTIVATIONS,
    FULL,
    LOCAL,
    MOST_LAYERS,
    by_layer_types,
    decoder_language,
    labels,
    last_token_classifier,
    local_layers,
    span,
    tagging_dropout,
    window_layers,
    windowed,
)
from clearhead.checkpoints.weights.fields import (
    Field,
    FieldRule,
    Only,
    Values,
    computed,
    ignored,
    inherited,
    named,
    same,
)
from clearhead.checkpoints.weights.mapping import Rule, ignore, rename, renames
from clearhead.config import ModelConfig
from clearhead.errors import refuse

WidthRule = Callable[[Values], int]

LLAMA_CONSTANTS = {
    "decoder.input.kind": "tokens",
    "decoder.norm": "rms",
    "decoder.gated": True,
    "decoder.bias": False,
}


def llama_sizes(
    *,
    vocab_size: int = 32_000,
    hidden_size: int = 4096,
    intermediate_size: int,
    layers: int = 32,
    n_heads: int = 32,
    kv_heads: int | None,
    head_dim: int | None = None,
    hidden_act: str = "silu",
    eps: float = 1e-6,
    eps_field: str = "rms_norm_eps",
    std: float = 0.02,
    attn_dropout: float = 0.0,
    max_length: int = 0,
    angles: Sequence[FieldRule] = (),
) -> tuple[FieldRule, ...]:
    """The fields that all of these families share. The arguments are a family's defaults for absent fields.

    `angles` are the fields of its positions, by default whole rotary heads for texts of `max_length`.
    """
    return (
        same("vocab_size", "decoder.input.vocab_size", default=vocab_size),
        same("hidden_size", "decoder.d_model", default=hidden_size),
        same("intermediate_size", "decoder.d_ff", default=intermediate_size),
        same("num_hidden_layers", "decoder.n_layers", default=layers),
        same("num_attention_heads", "decoder.n_heads", default=n_heads),
        _width(
            "num_key_value_heads",
            "decoder.n_kv_heads",
            there=lambda theirs: theirs["num_attention_heads"],
            here=lambda ours: ours["n_heads"],
            default=kv_heads,
        ),
        _width(
            "head_dim",
            "decoder.d_head",
            there=lambda theirs: theirs["hidden_size"] // (theirs["num_attention_heads"] or 1),
            here=lambda ours: ours["d_model"] // ours["n_heads"],
            default=head_dim,
        ),
        named("hidden_act", "decoder.activation", names=ACTIVATIONS, default=hidden_act),
        same(eps_field, "decoder.norm_eps", default=eps),
        same("initializer_range", "init.std", default=std),
        same("attention_dropout", "decoder.attn_dropout", default=attn_dropout),
        *(angles or rotary(max_length=max_length)),
        Only("pretraining_tp", 1),
        Only("rope_interleaved", False),
        ignored("is_llama_config", "max_sequence_length", "transformers.js_config"),
        ignored("unsloth_*"),
    )


def _width(theirs: str, ours: str, *, there: WidthRule, here: WidthRule, default: int | None) -> Field:
    """A width that is None in our config if it follows from the other fields, and is always written."""

    def read(value: int | None, values: Values) -> int | None:
        return None if value == there(values) else value

    def write(value: int | None, config: Values) -> int:
        return value or here(config["decoder"])

    return computed(theirs, ours, read=read, write=write, default=default, like=default)


BIASES = (
    inherited("attention_bias", "decoder.qkv_bias", "decoder.out_bias", of="bias", default=False),
    inherited("mlp_bias", "decoder.ffn_bias", of="bias", default=False),
)


def llama_rules(_: ModelConfig) -> Sequence[Rule]:
    """Renames the matrices. The gate, biases and norms of heads exist only if the config has them."""
    ours = "decoder.blocks.{i}"
    attention = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "out", "q_norm": "q_norm", "k_norm": "k_norm"}
    return (
        rename("embed_tokens.weight", "decoder.embed.tokens.weight"),
        rename("layers.{i}.input_layernorm.{p}", f"{ours}.attn_norm.{{p}}"),
        *renames("layers.{i}.self_attn", f"{ours}.attn", attention),
        rename("layers.{i}.post_attention_layernorm.{p}", f"{ours}.ffn_norm.{{p}}"),
        *(rename(f"layers.{{i}}.mlp.{n}_proj.{{p}}", f"{ours}.ffn.{n}.{{p}}") for n in ("gate", "up", "down")),
        rename("norm.{p}", "decoder.final_norm.{p}"),
        ignore("rotary_emb.inv_freq", "layers.{i}.self_attn.rotary_emb.inv_freq"),
    )


def llama_heads(name: str, *, span_prefix: str = "transformer.", tied: bool = False) -> tuple[HeadMap, ...]:
    """The heads that each of these families has: words, none, classes, tags, spans."""
    return (
        decoder_language(f"{name}ForCausalLM", "model.", tied=tied),
        HeadMap(f"{name}Model", {"head.kind": "none"}),
        last_token_classifier(f"{name}ForSequenceClassification", "model."),
        HeadMap(
            f"{name}ForTokenClassification",
            {"head.kind": "tagging"},
            lambda _: (rename("score.{p}", "head.output.{p}"),),
            (*labels(), tagging_dropout(), same("token_classification_bias", "head.bias", default=True)),
            prefix="model.",
        ),
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
    modernize: Callable[[dict[str, Any]], dict[str, Any]] = modern,
    **sizes: Any,
) -> Family:
    """A family of Llama's blocks, with its own fields, settings and defaults, and the first `n_classes` classes."""
    return Family(
        model_type=model_type,
        constants={**LLAMA_CONSTANTS, **(constants or {})},
        fields=(*llama_sizes(**sizes), *fields),
        rules=rules,
        heads=llama_heads(name, tied=tied, span_prefix=span_prefix)[:n_classes],
        modernize=modernize,
    )


LLAMA = llama_like(
    "llama",
    "Llama",
    *BIASES,
    intermediate_size=11_008,
    kv_heads=None,
    max_length=2048,
)

# Its feed-forward layer has no gate.
ARCEE = llama_like(
    "arcee",
    "Arcee",
    *BIASES,
    constants={"decoder.gated": False},
    hidden_size=2560,
    intermediate_size=18_432,
    kv_heads=None,
    hidden_act="relu2",
    eps=1e-5,
    max_length=4096,
)

# A query reaches the last `sliding_window` keys, including its own (Jiang et al. 2023, 2).
MISTRAL = llama_like(
    "mistral",
    "Mistral",
    computed("sliding_window", "decoder.window", default=4096),
    span_prefix="model.",
    intermediate_size=14_336,
    kv_heads=8,
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


def qwen_windows(is_local: IsLocal) -> tuple[FieldRule, ...]:
    """The layers with a window, and its reach."""

    def layers(_: Any, values: Values) -> list[int] | None:
        return window_layers(_qwen_local(values, is_local), values["num_hidden_layers"])

    def reach(said: int | None, values: Values) -> int | None:
        return said if _qwen_local(values, is_local) else None

    return (
        computed("max_window_layers", write=_first, default=28, like=28),
        by_layer_types("window_layers", layers),
        computed("sliding_window", "decoder.window", read=reach, default=4096),
        computed(
            "use_sliding_window",
            write=lambda _, ours: ours["decoder"]["window"] is not None,
            default=False,
            like=False,
        ),
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
    kv_heads=32,
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
    kv_heads=32,
    head_dim=128,
    max_length=32_768,
)
