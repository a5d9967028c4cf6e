"""The decoders of Gemma Team 2024 (norms multiply by 1 + weight), 2024b (sandwich, caps) and 2025 (two rotations)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from clearhead.checkpoints.families import layered
from clearhead.checkpoints.families.decoders.llama import BIASES, CONSTANTS, heads, sizes
from clearhead.checkpoints.families.decoders.llama import rules as llama_rules
from clearhead.checkpoints.families.encoders.bidirectional import encoding, encoding_constants, encoding_rules
from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.rotary import modern, rotary
from clearhead.checkpoints.families.shared import ACTIVATIONS, FULL, LOCAL
from clearhead.checkpoints.weights.fields import Field, FieldRule, Only, Values, computed, ignored, named
from clearhead.checkpoints.weights.mapping import Rule, rename
from clearhead.config import ModelConfig

TANH = {"gelu_pytorch_tanh": "gelu_tanh"}
SHARED = CONSTANTS | {"decoder.norm_gain": "one_plus_weight", "decoder.input.scale": True}
# Texts are read both ways only by models that make vectors.
ONE_WAY = Only("use_bidirectional_attention", False)
THETAS = {FULL: 1_000_000.0, LOCAL: 10_000.0}


def sandwich_rules(config: ModelConfig) -> Sequence[Rule]:
    """Llama's names, except for the four norms of a block."""
    ours = "decoder.blocks.{i}"
    norms = {
        "post_attention_layernorm": "attn_out_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "ffn_out_norm",
    }
    kept = [rule for rule in llama_rules(config) if "post_attention_layernorm" not in rule.theirs[0]]
    return (*kept, *(rename(f"layers.{{i}}.{a}.{{p}}", f"{ours}.{b}.{{p}}") for a, b in norms.items()))


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
    words, *rest = heads(name, tied=True)
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


def _sizes(**defaults: Any) -> list[FieldRule]:
    """Llama's, without the activation, which has another name here."""
    return [one for one in sizes(head_dim=256, **defaults) if not isinstance(one, Field) or one.theirs != "hidden_act"]


FAMILY = Family(
    model_type="gemma",
    constants=SHARED,
    fields=(
        *_sizes(
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
    heads=heads("Gemma", tied=True)[:4],
    modernize=modern,
)

_FIELDS_2, _HEADS_2 = _later(
    "Gemma2", cap=30.0, score_cap=computed("attn_logit_softcapping", "decoder.soft_cap", default=50.0)
)
GEMMA2 = Family(
    model_type="gemma2",
    constants=SHARED | {"decoder.norm_place": "sandwich"},
    fields=(
        *_sizes(
            vocab_size=256_000,
            hidden_size=2304,
            intermediate_size=9216,
            layers=26,
            n_heads=8,
            kv_heads=4,
            angles=rotary(max_length=8192),
        ),
        *layered.windows(every=2),
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
    constants=SHARED | {"decoder.norm_place": "sandwich", "decoder.qk_norm": True},
    fields=(
        *_sizes(
            vocab_size=262_208,
            hidden_size=2304,
            intermediate_size=9216,
            layers=26,
            n_heads=8,
            kv_heads=4,
            angles=(*layered.angles(6, THETAS), *rotary(max_length=131_072)[1:]),
        ),
        *layered.windows(every=6),
        *_FIELDS_3,
    ),
    rules=sandwich_rules,
    heads=(_WORDS, HeadMap("Gemma3TextModel", {"head.kind": "none"})),
    modernize=layered.modernizer(THETAS, **{FULL: "rope_theta", LOCAL: "rope_local_base_freq"}),
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
