"""Marian (the encoder-decoder of Vaswani et al. 2017, as in Marian NMT), and PEGASUS, which puts its norms first."""

from collections.abc import Sequence

from clearhead.checkpoints.families.encoder_decoders.bart import (
    BART_FIELDS,
    LANGUAGE_FIELDS,
    SINUSOIDAL,
    STACKS,
    WITH_BIAS,
    bart_rules,
    both,
    language_rules,
    norms,
    position_tables,
    streams,
)
from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.weights.fields import FieldRule, Only, Values, computed, same
from clearhead.checkpoints.weights.mapping import Rule
from clearhead.config import ModelConfig
from clearhead.errors import refuse


def _decoder_vocabulary(size: int | None, values: Values) -> int:
    shared = size is None or values["share_encoder_decoder_embeddings"]
    return values["vocab_size"] if shared else size


def _tied(tied: bool, values: Values) -> bool:
    if values["share_encoder_decoder_embeddings"] and not tied:
        raise refuse("", "true, as share_encoder_decoder_embeddings is", "false", "try both false")
    return tied


SHARED = "share_encoder_decoder_embeddings"
TABLES: tuple[FieldRule, ...] = (
    same("vocab_size", "encoder.input.vocab_size", default=58_101),
    computed("decoder_vocab_size", "decoder.input.vocab_size", read=_decoder_vocabulary, default=None),
    same(SHARED, "share_embeddings", default=True),
)

MARIAN = Family(
    model_type="marian",
    constants={
        **dict.fromkeys(both("input.kind"), "tokens"),
        **dict.fromkeys(both("positions.kind"), "sinusoidal"),
        **dict.fromkeys(both("norm_place"), "post"),
    },
    fields=(
        *TABLES,
        *SINUSOIDAL,
        *BART_FIELDS,
        *norms(before=False, of_embedding=False),
    ),
    rules=bart_rules,
    heads=(
        HeadMap(
            "MarianMTModel",
            {"head.kind": "language"},
            lambda config: (*language_rules(config), *position_tables(config, "model.", written=False)),
            (*LANGUAGE_FIELDS, computed("tie_word_embeddings", "head.tied", read=_tied, default=True)),
            prefix="model.",
            presence=WITH_BIAS,
        ),
        HeadMap("MarianModel", {"head.kind": "none"}, lambda config: position_tables(config, written=True)),
    ),
    fallback={"pad_token_id": 0, "decoder_start_token_id": 0},
)


def pegasus_rules(config: ModelConfig) -> Sequence[Rule]:
    """The shared rules plus a norm after the last block of each stack."""
    _, writes = streams(config)
    return (*bart_rules(config), *(writes(f"{s}.layer_norm.{{p}}", f"{s}.final_norm.{{p}}") for s in STACKS))


PEGASUS = Family(
    model_type="pegasus",
    constants={
        **dict.fromkeys(both("input.kind"), "tokens"),
        **dict.fromkeys(both("positions.kind"), "sinusoidal"),
        "share_embeddings": True,
    },
    fields=(
        same("vocab_size", *both("input.vocab_size"), default=50_265),
        *SINUSOIDAL,
        *BART_FIELDS,
        *norms(before=True, of_embedding=False),
        Only("tie_word_embeddings", True),
    ),
    rules=pegasus_rules,
    heads=(
        HeadMap(
            "PegasusForConditionalGeneration",
            {"head.kind": "language", "head.tied": True},
            lambda config: (*language_rules(config), *position_tables(config, "model.", written=True)),
            LANGUAGE_FIELDS,
            prefix="model.",
            presence=WITH_BIAS,
        ),
        HeadMap("PegasusModel", {"head.kind": "none"}, lambda config: position_tables(config, written=True)),
    ),
)
