"""The decoder of Touvron et al. 2023, and decoders that differ in one mechanism: a window, or no gate."""

from collections.abc import Callable, Sequence

from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.rotary import modern, rotary
from clearhead.checkpoints.families.shared import (
    ACTIVATIONS,
    labels,
    last_token_classifier,
    output_matrix,
    span,
    tagging_dropout,
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
from clearhead.checkpoints.weights.mapping import Rule, ignore, rename
from clearhead.config import LanguageHead, ModelConfig, Rotary, StackConfig, TokenInput

PRESETS = {
    # RMSNorm before each branch, a gated SiLU, rotary positions, no bias anywhere (section 2.2).
    "llama-tiny": ModelConfig(
        decoder=StackConfig(
            input=TokenInput(vocab_size=32_000),
            d_model=288,
            n_layers=6,
            n_heads=6,
            d_ff=768,
            positions=Rotary(),
            norm="rms",
            activation="silu",
            gated=True,
            bias=False,
        ),
        head=LanguageHead(tied=True),
    )
}

WidthRule = Callable[[Values], int]

CONSTANTS = {
    "decoder.input.kind": "tokens",
    "decoder.norm": "rms",
    "decoder.gated": True,
    "decoder.bias": False,
}


def sizes(
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


def rules(_: ModelConfig) -> Sequence[Rule]:
    """Renames the matrices. The gate, biases and norms of heads exist only if the config has them."""
    ours = "decoder.blocks.{i}"
    attention = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "out", "q_norm": "q_norm", "k_norm": "k_norm"}
    return (
        rename("embed_tokens.weight", "decoder.embed.tokens.weight"),
        rename("layers.{i}.input_layernorm.{p}", f"{ours}.attn_norm.{{p}}"),
        *(rename(f"layers.{{i}}.self_attn.{a}.{{p}}", f"{ours}.attn.{b}.{{p}}") for a, b in attention.items()),
        rename("layers.{i}.post_attention_layernorm.{p}", f"{ours}.ffn_norm.{{p}}"),
        *(rename(f"layers.{{i}}.mlp.{n}_proj.{{p}}", f"{ours}.ffn.{n}.{{p}}") for n in ("gate", "up", "down")),
        rename("norm.{p}", "decoder.final_norm.{p}"),
        ignore("rotary_emb.inv_freq", "layers.{i}.self_attn.rotary_emb.inv_freq"),
    )


def heads(name: str, *, span_prefix: str = "transformer.", tied: bool = False) -> tuple[HeadMap, ...]:
    """The heads that each of these families has: words, none, classes, tags, spans."""
    return (
        HeadMap(
            f"{name}ForCausalLM",
            {"head.kind": "language"},
            lambda config: (output_matrix("lm_head.weight", config, "decoder.embed.tokens.weight"),),
            (same("tie_word_embeddings", "head.tied", default=tied),),
            prefix="model.",
        ),
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


FAMILY = Family(
    model_type="llama",
    constants=CONSTANTS,
    fields=(*sizes(intermediate_size=11_008, kv_heads=None, max_length=2048), *BIASES),
    rules=rules,
    heads=heads("Llama"),
    modernize=modern,
)

# Its feed-forward layer has no gate.
ARCEE = Family(
    model_type="arcee",
    constants=CONSTANTS | {"decoder.gated": False},
    fields=(
        *sizes(
            hidden_size=2560,
            intermediate_size=18_432,
            kv_heads=None,
            hidden_act="relu2",
            eps=1e-5,
            max_length=4096,
        ),
        *BIASES,
    ),
    rules=rules,
    heads=heads("Arcee"),
    modernize=modern,
)

# A query reaches the last `sliding_window` keys, including its own (Jiang et al. 2023, 2).
MISTRAL = Family(
    model_type="mistral",
    constants=CONSTANTS,
    fields=(
        *sizes(intermediate_size=14_336, kv_heads=8, max_length=131_072),
        computed("sliding_window", "decoder.window", default=4096),
    ),
    rules=rules,
    heads=heads("Mistral", span_prefix="model."),
    modernize=modern,
)
