"""Decoders with layers of two kinds, with a window and without: Cohere, OLMo and Gemma."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from clearhead.checkpoints.families.angles import (
    layered_angles,
    layered_modernizer,
    modern,
    rotary,
    windowed_layers,
    windows,
)
from clearhead.checkpoints.families.decoders.llama import BIASES, LLAMA_CONSTANTS, llama_heads, llama_rules, llama_sizes
from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.shared import (
    ACTIVATIONS,
    FULL,
    LOCAL,
    by_layer_types,
    decoder_heads,
    decoder_language,
    encoding,
    encoding_constants,
    encoding_rules,
)
from clearhead.checkpoints.weights.fields import Field, FieldRule, Only, Values, computed, ignored, named
from clearhead.checkpoints.weights.mapping import Rule, paired, renames
from clearhead.config import ModelConfig

# --- Cohere 2024 and 2025 ------------------------------------------------------------------------------------------

COHERE_SHARED = LLAMA_CONSTANTS | {"decoder.norm": "layer", "decoder.parallel": "one_norm"}


def cohere_rules(config: ModelConfig) -> Sequence[Rule]:
    """Llama's, with neighbours rotated."""
    width = config.output.head_width
    turned = {f"decoder.blocks.{{i}}.attn.{side}.{{p}}" for side in "qk"}
    return [
        paired(rule, 0, width=width, rotated=width) if turned & {*rule.ours} else rule for rule in llama_rules(config)
    ]


def _cohere_sizes(angles: Sequence[FieldRule]) -> tuple[FieldRule, ...]:
    return llama_sizes(
        vocab_size=256_000,
        hidden_size=8192,
        intermediate_size=22_528,
        layers=40,
        n_heads=64,
        kv_heads=None,
        eps=1e-5,
        eps_field="layer_norm_eps",
        angles=angles,
    )


def _words(architecture: str) -> Any:
    scale = computed(
        "logit_scale",
        "head.scale",
        read=lambda factor, _: None if factor == 1.0 else factor,
        write=lambda factor, _: 1.0 if factor is None else factor,
        default=0.0625,
        like=1.0,
    )
    return decoder_language(architecture, "model.", scale)


COHERE = Family(
    model_type="cohere",
    constants=COHERE_SHARED,
    fields=(
        *_cohere_sizes(rotary(max_length=8192, theta=500_000.0)),
        BIASES[0],
        # With it, every head has a norm of its own.
        Only("use_qk_norm", False),
        ignored("logit_scale"),
    ),
    rules=cohere_rules,
    heads=(_words("CohereForCausalLM"), *decoder_heads("Cohere", "model.", "bare")),
    modernize=modern,
)


def _rotated(_: Any, values: Values) -> list[int] | None:
    """Only layers with a window have positions; without any, all would be without."""
    local = windowed_layers(values, 4)
    return None if len(local) == values["num_hidden_layers"] else local


COHERE2 = Family(
    model_type="cohere2",
    constants=COHERE_SHARED,
    fields=(
        *_cohere_sizes(rotary(max_length=8192)),
        BIASES[0],
        *windows(every=4),
        by_layer_types("rotary_layers", _rotated),
        ignored("logit_scale"),
    ),
    rules=cohere_rules,
    heads=(_words("Cohere2ForCausalLM"), *decoder_heads("Cohere2", "model.", "bare")),
    modernize=modern,
)


# --- OLMo 2 and 3 (OLMo et al. 2024 and 2025) ----------------------------------------------------------------------

OLMO_SHARED = LLAMA_CONSTANTS | {
    "decoder.norm_place": "branch",
    "decoder.qk_norm": True,
    "decoder.qk_norm_over": "heads",
}
OLMO_THETAS = {FULL: 500_000.0, LOCAL: 500_000.0}


def olmo_rules(config: ModelConfig) -> Sequence[Rule]:
    """Llama's names, except for the norms."""
    norms = {"post_attention_layernorm": "attn_out_norm", "post_feedforward_layernorm": "ffn_out_norm"}
    kept = [rule for rule in llama_rules(config) if not rule.theirs[0].endswith("layernorm.{p}")]
    return (
        *kept,
        *renames("layers.{i}", "decoder.blocks.{i}", norms),
    )


def _olmo_sizes(angles: Sequence[FieldRule]) -> tuple[FieldRule, ...]:
    return llama_sizes(vocab_size=50_304, intermediate_size=11_008, kv_heads=None, eps=1e-5, angles=angles)


def _heads(name: str) -> tuple[HeadMap, ...]:
    return llama_heads(name)[:3]


OLMO2 = Family(
    model_type="olmo2",
    constants=OLMO_SHARED,
    fields=(*_olmo_sizes(rotary(max_length=2048)), BIASES[0]),
    rules=olmo_rules,
    heads=_heads("Olmo2"),
    modernize=modern,
)
OLMO3 = Family(
    model_type="olmo3",
    constants=OLMO_SHARED,
    fields=(
        *_olmo_sizes((*layered_angles(4, OLMO_THETAS), *rotary(max_length=2048)[1:])),
        BIASES[0],
        *windows(every=4),
    ),
    rules=olmo_rules,
    heads=_heads("Olmo3"),
    modernize=layered_modernizer(OLMO_THETAS, **{FULL: "rope_theta"}),
)


# --- Gemma (Gemma Team 2024, 2024b and 2025) -----------------------------------------------------------------------

TANH = {"gelu_pytorch_tanh": "gelu_tanh"}
GEMMA_SHARED = LLAMA_CONSTANTS | {"decoder.norm_gain": "one_plus_weight", "decoder.input.scale": True}
# Texts are read both ways only by models that make vectors.
ONE_WAY = Only("use_bidirectional_attention", False)
GEMMA_THETAS = {FULL: 1_000_000.0, LOCAL: 10_000.0}


def sandwich_rules(config: ModelConfig) -> Sequence[Rule]:
    """Llama's names, except for the four norms of a block."""
    ours = "decoder.blocks.{i}"
    norms = {
        "post_attention_layernorm": "attn_out_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "ffn_out_norm",
    }
    kept = [rule for rule in llama_rules(config) if "post_attention_layernorm" not in rule.theirs[0]]
    return (*kept, *renames("layers.{i}", ours, norms))


def _scale() -> Field:
    """The scores are divided by the square root of this number."""
    return computed(
        "query_pre_attn_scalar",
        "decoder.attn_scale",
        read=lambda n, _: n**-0.5,
        write=lambda _, ours: round((ours["decoder"]["attn_scale"] or _width(ours) ** -0.5) ** -2),
        default=256,
        like=256,
    )


def _width(ours: Any) -> int:
    stack = ours["decoder"]
    return stack["d_head"] or stack["d_model"] // stack["n_heads"]


def _later(name: str, *, cap: float | None, score_cap: FieldRule) -> tuple[Sequence[FieldRule], tuple[HeadMap, ...]]:
    """What the second and third share: fields, and heads of which only that of words caps its logits."""
    words, *rest = llama_heads(name, tied=True)
    words = HeadMap(
        words.architecture,
        words.constants,
        words.rules,
        (*words.fields, computed("final_logit_softcapping", "head.soft_cap", default=cap)),
        prefix=words.prefix,
    )
    fields = (
        _scale(),
        score_cap,
        named("hidden_activation", "decoder.activation", names=TANH | ACTIVATIONS, default="gelu_pytorch_tanh"),
        BIASES[0],
        ONE_WAY,
        ignored("final_logit_softcapping", "hidden_act", "cache_implementation", "_sliding_window_pattern"),
    )
    return fields, (words, *rest[:-1])


def _gemma_sizes(**defaults: Any) -> list[FieldRule]:
    """Llama's, without the activation, which has another name here."""
    return [
        one for one in llama_sizes(head_dim=256, **defaults) if not isinstance(one, Field) or one.theirs != "hidden_act"
    ]


GEMMA = Family(
    model_type="gemma",
    constants=GEMMA_SHARED,
    fields=(
        *_gemma_sizes(
            vocab_size=256_000,
            hidden_size=3072,
            intermediate_size=24_576,
            layers=28,
            n_heads=16,
            kv_heads=16,
            max_length=8192,
        ),
        # Files say gelu and mean the approximation with tanh.
        named(
            "hidden_act",
            "decoder.activation",
            names=TANH | ACTIVATIONS | {"gelu": "gelu_tanh"},
            default="gelu_pytorch_tanh",
        ),
        BIASES[0],
        ONE_WAY,
        ignored("hidden_activation"),
    ),
    rules=llama_rules,
    heads=llama_heads("Gemma", tied=True)[:4],
    modernize=modern,
)

_FIELDS_2, _HEADS_2 = _later(
    "Gemma2", cap=30.0, score_cap=computed("attn_logit_softcapping", "decoder.soft_cap", default=50.0)
)
GEMMA2 = Family(
    model_type="gemma2",
    constants=GEMMA_SHARED | {"decoder.norm_place": "sandwich"},
    fields=(
        *_gemma_sizes(
            vocab_size=256_000,
            hidden_size=2304,
            intermediate_size=9216,
            layers=26,
            n_heads=8,
            kv_heads=4,
            angles=rotary(max_length=8192),
        ),
        *windows(every=2),
        *_FIELDS_2,
    ),
    rules=sandwich_rules,
    heads=_HEADS_2,
    modernize=modern,
)

# The library has the third's cap on scores in its config, but its network does not cap them.
_FIELDS_3, _HEADS_3 = _later("Gemma3", cap=None, score_cap=Only("attn_logit_softcapping", None))
_WORDS, *_ = _HEADS_3
GEMMA3 = Family(
    model_type="gemma3_text",
    constants=GEMMA_SHARED | {"decoder.norm_place": "sandwich", "decoder.qk_norm": True},
    fields=(
        *_gemma_sizes(
            vocab_size=262_208,
            hidden_size=2304,
            intermediate_size=9216,
            layers=26,
            n_heads=8,
            kv_heads=4,
            angles=(*layered_angles(6, GEMMA_THETAS), *rotary(max_length=131_072)[1:]),
        ),
        *windows(every=6),
        *_FIELDS_3,
    ),
    rules=sandwich_rules,
    heads=(_WORDS, HeadMap("Gemma3TextModel", {"head.kind": "none"})),
    modernize=layered_modernizer(GEMMA_THETAS, **{FULL: "rope_theta", LOCAL: "rope_local_base_freq"}),
)


def _halved(field: FieldRule) -> FieldRule:
    """The window, which covers sliding_window // 2 tokens on each side. Ours also counts the token itself."""
    if not isinstance(field, Field) or field.theirs != "sliding_window":
        return field

    def read(said: int | None, values: Values) -> int | None:
        window = field.read(said, values)
        return None if window is None else window // 2 + 1

    def write(window: int | None, ours: Values) -> int:
        return field.write(None if window is None else 2 * (window - 1), ours)

    return replace(field, read=read, write=write)


# EmbeddingGemma (Vera et al. 2025): the same blocks as an encoder.
EMBEDDING_GEMMA = Family(
    model_type="gemma3_text",
    constants=encoding_constants(GEMMA3.constants),
    fields=(
        *encoding([_halved(one) for one in GEMMA3.fields if one is not ONE_WAY]),
        Only("use_bidirectional_attention", True),
        ignored("final_logit_softcapping"),
    ),
    rules=encoding_rules(sandwich_rules),
    heads=(HeadMap("Gemma3TextModel", {"head.kind": "none"}),),
    modernize=GEMMA3.modernize,
    only_if={"use_bidirectional_attention": True},
)
GEMMA3_TEXT = (EMBEDDING_GEMMA, GEMMA3)
