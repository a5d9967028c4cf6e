"""Decoders with layers of two kinds, with a window and without: Cohere, OLMo and Gemma."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from clearhead.checkpoints.families.angles import (
    layered_angles,
    layered_modernizer,
    rotary,
    windowed_layers,
    windows,
)
from clearhead.checkpoints.families.as_encoder import as_encoder, encoding
from clearhead.checkpoints.families.decoders.llama import BIASES, llama_heads, llama_like, llama_rules, renamed
from clearhead.checkpoints.families.family import HeadMap
from clearhead.checkpoints.families.shared import (
    ACTIVATIONS,
    FULL,
    LOCAL,
    bare,
    by_layer_types,
    decoder_language,
    neighbours,
    width_of,
)
from clearhead.checkpoints.weights.fields import Field, FieldRule, Only, Values, computed, factor, ignored, named
from clearhead.checkpoints.weights.mapping import Rule
from clearhead.config import ModelConfig

# --- Cohere 2024 and 2025 ------------------------------------------------------------------------------------------


def cohere_rules(config: ModelConfig) -> Sequence[Rule]:
    """Llama's, with neighbours rotated."""
    return neighbours(llama_rules(config), config)


def _words(architecture: str) -> HeadMap:
    return decoder_language(architecture, "model.", factor("logit_scale", "head.scale", default=0.0625))


cohere_like = partial(
    llama_like,
    constants={"decoder.norm": "layer", "decoder.parallel": "one_norm"},
    rules=cohere_rules,
    n_classes=2,
    vocab_size=256_000,
    hidden_size=8192,
    intermediate_size=22_528,
    num_hidden_layers=40,
    num_attention_heads=64,
    layer_norm_eps=1e-5,
)
COHERE = cohere_like(
    "cohere",
    "Cohere",
    BIASES[0],
    # With it, every head has a norm of its own.
    Only("use_qk_norm", False),
    ignored("logit_scale"),
    words=_words("CohereForCausalLM"),
    angles=rotary(max_length=8192, theta=500_000.0),
)


def _rotated(_: Any, values: Values) -> list[int] | None:
    """Only layers with a window have positions; without any, all would be without."""
    local = windowed_layers(values, 4)
    return None if len(local) == values["num_hidden_layers"] else local


COHERE2 = cohere_like(
    "cohere2",
    "Cohere2",
    BIASES[0],
    *windows(every=4),
    by_layer_types("rotary_layers", _rotated),
    ignored("logit_scale"),
    words=_words("Cohere2ForCausalLM"),
    max_length=8192,
)


# --- OLMo 2 and 3 (OLMo et al. 2024 and 2025) ----------------------------------------------------------------------

OLMO_NORMS = {"post_attention_layernorm": "attn_out_norm", "post_feedforward_layernorm": "ffn_out_norm"}
OLMO_THETAS = {FULL: 500_000.0, LOCAL: 500_000.0}


def olmo_rules(_: ModelConfig) -> Sequence[Rule]:
    """Llama's names, except for the norms."""
    return renamed(OLMO_NORMS, but=("attn_norm", "ffn_norm"))


olmo_like = partial(
    llama_like,
    constants={"decoder.norm_place": "branch", "decoder.qk_norm": True, "decoder.qk_norm_over": "heads"},
    rules=olmo_rules,
    n_classes=3,
    vocab_size=50_304,
    intermediate_size=11_008,
    rms_norm_eps=1e-5,
)
OLMO2 = olmo_like("olmo2", "Olmo2", BIASES[0], max_length=2048)
OLMO3 = olmo_like(
    "olmo3",
    "Olmo3",
    BIASES[0],
    *windows(every=4),
    angles=(*layered_angles(4, OLMO_THETAS), *rotary(max_length=2048)[1:]),
    modernize=layered_modernizer(OLMO_THETAS, **{FULL: "rope_theta"}),
)


# --- Gemma (Gemma Team 2024, 2024b and 2025) -----------------------------------------------------------------------

TANH = {"gelu_pytorch_tanh": "gelu_tanh", **ACTIVATIONS}
# Texts are read both ways only by models that make vectors.
ONE_WAY = Only("use_bidirectional_attention", False)
GEMMA_THETAS = {FULL: 1_000_000.0, LOCAL: 10_000.0}
SANDWICH = {
    "post_attention_layernorm": "attn_out_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "ffn_out_norm",
}


def _activation(theirs: str, names: dict[str, str]) -> Field:
    return named(theirs, "decoder.activation", names=names, default="gelu_pytorch_tanh")


def _later(name: str, cap: float | None) -> tuple[Sequence[FieldRule], HeadMap]:
    """What the second and third share: fields, and the class that writes words, which alone caps its logits."""
    words = llama_heads(name, tied=True)[0]
    soft_cap = computed("final_logit_softcapping", "head.soft_cap", default=cap, null=True)
    fields = (
        # The scores are divided by the square root of this number.
        computed(
            "query_pre_attn_scalar",
            "decoder.attn_scale",
            read=lambda n, _: n**-0.5,
            write=lambda scale, ours: round((scale or width_of(ours["decoder"]) ** -0.5) ** -2),
            default=256,
        ),
        _activation("hidden_activation", TANH),
        BIASES[0],
        ONE_WAY,
        ignored("final_logit_softcapping", "hidden_act", "cache_implementation", "_sliding_window_pattern"),
    )
    return fields, replace(words, fields=(*words.fields, soft_cap))


_GAIN = {"decoder.norm_gain": "one_plus_weight", "decoder.input.scale": True}
gemma_like = partial(llama_like, tied=True, n_classes=4, leave_out=("hidden_act",), vocab_size=256_000, head_dim=256)


def _sandwich_rules(_: ModelConfig) -> Sequence[Rule]:
    return renamed(SANDWICH)


later_gemma_like = partial(
    gemma_like,
    rules=_sandwich_rules,
    hidden_size=2304,
    intermediate_size=9216,
    num_hidden_layers=26,
    num_attention_heads=8,
    num_key_value_heads=4,
)
GEMMA = gemma_like(
    "gemma",
    "Gemma",
    # Files say gelu and mean the approximation with tanh.
    _activation("hidden_act", TANH | {"gelu": "gelu_tanh"}),
    BIASES[0],
    ONE_WAY,
    ignored("hidden_activation"),
    constants=_GAIN,
    hidden_size=3072,
    intermediate_size=24_576,
    num_hidden_layers=28,
    num_attention_heads=16,
    num_key_value_heads=16,
    max_length=8192,
)

_FIELDS_2, _WORDS_2 = _later("Gemma2", 30.0)
GEMMA2 = later_gemma_like(
    "gemma2",
    "Gemma2",
    *windows(every=2),
    *_FIELDS_2,
    computed("attn_logit_softcapping", "decoder.soft_cap", default=50.0, null=True),
    constants={**_GAIN, "decoder.norm_place": "sandwich"},
    words=_WORDS_2,
    max_length=8192,
)

_FIELDS_3, _WORDS_3 = _later("Gemma3", None)
GEMMA3 = later_gemma_like(
    "gemma3_text",
    "Gemma3Text",
    *windows(every=6),
    *_FIELDS_3,
    # The library has the third's cap on scores in its config, but its network does not cap them.
    Only("attn_logit_softcapping", None),
    constants={**_GAIN, "decoder.norm_place": "sandwich", "decoder.qk_norm": True},
    n_classes=2,
    words=_WORDS_3,
    modernize=layered_modernizer(GEMMA_THETAS, **{FULL: "rope_theta", LOCAL: "rope_local_base_freq"}),
    vocab_size=262_208,
    angles=(*layered_angles(6, GEMMA_THETAS), *rotary(max_length=131_072)[1:]),
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
EMBEDDING_GEMMA = as_encoder(
    GEMMA3,
    fields=(
        *encoding([_halved(one) for one in GEMMA3.fields if one is not ONE_WAY]),
        Only("use_bidirectional_attention", True),
    ),
    heads=(bare("Gemma3TextModel"),),
    only_if={"use_bidirectional_attention": True},
)
GEMMA3_TEXT = (EMBEDDING_GEMMA, GEMMA3)
