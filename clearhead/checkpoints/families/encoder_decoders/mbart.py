"""Relatives of BART with norms before each branch: mBART (Liu et al. 2020), M2M-100 and NLLB (Fan et al. 2020, the
NLLB team 2022), and Blenderbot (Roller et al. 2020).
"""

from typing import Any

from clearhead.checkpoints.families.encoder_decoders import bart
from clearhead.checkpoints.families.encoder_decoders.encoder_decoder import (
    FIELDS,
    LANGUAGE_FIELDS,
    LENGTH,
    STACKS,
    WITH_BIAS,
    both,
    language_rules,
    norms,
)
from clearhead.checkpoints.families.encoders.roberta import after_padding
from clearhead.checkpoints.families.family import Document, Family, HeadMap
from clearhead.checkpoints.families.shared import end_token_classifier, labels, span, with_defaults
from clearhead.checkpoints.weights.fields import Field, FieldRule, Only, Values, computed, ignored, same
from clearhead.checkpoints.weights.mapping import Rule, ignore, rename
from clearhead.config import ModelConfig

CONSTANTS: Document = {**dict.fromkeys(both("input.kind"), "tokens"), "share_embeddings": True}


def rules(config: ModelConfig) -> tuple[Rule, ...]:
    """BART's, and a norm after the last block of each stack."""
    return (*bart.all_rules(config), *(rename(f"{s}.layer_norm.{{p}}", f"{s}.final_norm.{{p}}") for s in STACKS))


def heads(name: str, fields: tuple[FieldRule, ...] = LANGUAGE_FIELDS) -> tuple[HeadMap, ...]:
    """The classes that each of them has."""
    writer = f"{name}ForConditionalGeneration"
    return (
        HeadMap(
            writer,
            {"head.kind": "language", "head.tied": True},
            language_rules,
            fields,
            prefix="model.",
            presence=WITH_BIAS if fields else {},
        ),
        HeadMap(f"{name}Model", {"head.kind": "none"}),
    )


def tables(vocab_size: int) -> tuple[FieldRule, ...]:
    """The token table."""
    return (same("vocab_size", *both("input.vocab_size"), default=vocab_size), Only("tie_word_embeddings", True))


def learned(max_length: int) -> tuple[FieldRule, ...]:
    """Learned positions."""
    return (
        same("max_position_embeddings", *both("positions.max_length"), default=max_length),
        Only("static_position_embeddings", False),
    )


MBART = Family(
    model_type="mbart",
    constants={
        **CONSTANTS,
        **dict.fromkeys(both("input.norm"), True),
        **dict.fromkeys(both("positions.kind"), "learned"),
        **dict.fromkeys(both("positions.offset"), 2),
    },
    fields=(*tables(50_265), *learned(1024), *FIELDS, *norms(before=True, of_embedding=True)),
    rules=rules,
    heads=(
        *heads("MBart"),
        end_token_classifier("MBartForSequenceClassification", {}, labels(), prefix="model."),
        span("MBartForQuestionAnswering", prefix="model."),
    ),
)

# Their checkpoints write normalize_before = false, although the norms are before.
BLENDERBOT = Family(
    model_type="blenderbot",
    constants={**CONSTANTS, **dict.fromkeys(both("positions.kind"), "learned")},
    fields=(
        *tables(8008),
        *learned(128),
        *with_defaults(
            FIELDS,
            d_model=2560,
            encoder_layers=2,
            decoder_layers=24,
            encoder_attention_heads=32,
            decoder_attention_heads=32,
            encoder_ffn_dim=10_240,
            decoder_ffn_dim=10_240,
        ),
        ignored("normalize_before", "add_final_layer_norm", "normalize_embedding", "layernorm_variant"),
        ignored("do_blenderbot_90_layernorm", "unk_token_id", "extra_layer_norm"),
    ),
    rules=rules,
    heads=heads("Blenderbot"),
)


# --- waves that begin after the padding --------------------------------------------------------------------------


def _base(d_model: int, _: Values | None = None) -> float:
    """The base at which our waves have their frequencies, 10000^(-i / (d/2 - 1))."""
    return 10_000.0 ** (d_model // 2 / (d_model // 2 - 1))


def waves(*stacks: str, default: int) -> tuple[Field]:
    """The base of the stacks' waves, which follows from d_model."""

    def d_model(base: float, ours: Values) -> int:
        width: int = ours[stacks[0]]["d_model"]
        if base != _base(width):
            raise ValueError(base)
        return width

    paths = [f"{stack}.positions.base" for stack in stacks]
    return (computed("d_model", *paths, read=_base, write=d_model, default=default, like=default),)


def _padding(offset: int, _: Any) -> int:
    return offset - 1


M2M_100 = Family(
    model_type="m2m_100",
    constants={
        **CONSTANTS,
        **dict.fromkeys(both("positions.kind"), "sinusoidal"),
        **dict.fromkeys(both("positions.layout"), "concatenated"),
    },
    fields=(
        *waves(*STACKS, default=1024),
        computed("pad_token_id", *both("positions.offset"), read=after_padding, write=_padding, default=1),
        # The waves have no end.
        computed("max_position_embeddings", write=lambda *_: LENGTH, default=LENGTH, like=LENGTH),
        *tables(128_112),
        *with_defaults(
            [field for field in FIELDS if not (isinstance(field, Only) and field.theirs.endswith("layerdrop"))],
            activation_function="relu",
            scale_embedding=True,
            attention_dropout=0.1,
        ),
        # In training, the reference library skips a share of the layers. Here all of them are trained.
        ignored("encoder_layerdrop", "decoder_layerdrop"),
    ),
    rules=lambda config: (*rules(config), ignore(*(f"{s}.embed_positions.weights" for s in STACKS))),
    heads=heads("M2M100", ()),
    uncounted_padding=True,
)
