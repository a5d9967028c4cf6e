"""The encoder-decoder of Lewis et al. 2019: learned positions, a normalised embedding, norms after each branch."""

from clearhead.checkpoints.families.encoder_decoders.encoder_decoder import (
    FIELDS,
    LANGUAGE_FIELDS,
    STACKS,
    WITH_BIAS,
    both,
    language_rules,
    norms,
    rules,
)
from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.shared import end_token_classifier, labels, span
from clearhead.checkpoints.weights.fields import Only, same
from clearhead.checkpoints.weights.mapping import Rule, ignore, rename
from clearhead.config import ModelConfig


def all_rules(config: ModelConfig) -> tuple[Rule, ...]:
    """The shared rules plus the position tables and the norms of the embeddings."""
    return (
        *rules(config),
        *(rename(f"{s}.embed_positions.weight", f"{s}.positions.table.weight") for s in STACKS),
        *(rename(f"{s}.layernorm_embedding.{{p}}", f"{s}.embed.norm.{{p}}") for s in STACKS),
        ignore(*(f"{s}.version" for s in STACKS)),
    )


FAMILY = Family(
    model_type="bart",
    constants={
        **dict.fromkeys(both("input.kind"), "tokens"),
        **dict.fromkeys(both("input.norm"), True),
        **dict.fromkeys(both("positions.kind"), "learned"),
        # Two unused rows before position 0, left over from a conversion from another library.
        **dict.fromkeys(both("positions.offset"), 2),
        **dict.fromkeys(both("norm_place"), "post"),
        "share_embeddings": True,
    },
    fields=(
        same("vocab_size", *both("input.vocab_size"), default=50_265),
        same("max_position_embeddings", *both("positions.max_length"), default=1024),
        *FIELDS,
        *norms(before=False, of_embedding=True),
        Only("tie_word_embeddings", True),
        Only("static_position_embeddings", False),
        Only("do_blenderbot_90_layernorm", False),
    ),
    rules=all_rules,
    heads=(
        HeadMap(
            "BartForConditionalGeneration",
            {"head.kind": "language", "head.tied": True},
            language_rules,
            LANGUAGE_FIELDS,
            prefix="model.",
            presence=WITH_BIAS,
        ),
        HeadMap("BartModel", {"head.kind": "none"}),
        end_token_classifier("BartForSequenceClassification", {}, labels(3), prefix="model."),
        span("BartForQuestionAnswering", prefix="model."),
    ),
)
