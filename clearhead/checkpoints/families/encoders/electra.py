"""The encoders of Clark et al. 2020: a generator of masked tokens, and a discriminator that finds replaced ones."""

from collections.abc import Sequence

from clearhead.checkpoints.families.encoders import bert, encoder_heads
from clearhead.checkpoints.families.encoders.bert import CONSTANTS, classifier_dropout, encoder_fields, norm, tagging
from clearhead.checkpoints.families.encoders.roberta import exact_gelu
from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.shared import output_matrix, span, with_defaults
from clearhead.checkpoints.weights.fields import Values, computed, ignored, same
from clearhead.checkpoints.weights.mapping import Rule, rename
from clearhead.config import LanguageHead, ModelConfig

PREFIX = "electra."


def _width(size: int, values: Values) -> int | None:
    """The width of the tables, if a dense layer follows: none where it is the width of the network."""
    return None if size == values["hidden_size"] else size


def _written_width(width: int | None, ours: Values) -> int:
    if width == ours["encoder"]["d_model"]:
        raise ValueError(width)
    return width or ours["encoder"]["d_model"]


FIELDS = (
    *with_defaults(encoder_fields(30_522), hidden_size=256, num_attention_heads=4, intermediate_size=1024),
    same("max_position_embeddings", "encoder.positions.max_length", default=512),
    computed("embedding_size", "encoder.input.width", read=_width, write=_written_width, default=128, like=128),
    # Of the class that chooses among texts, which is not here.
    ignored("summary_*"),
)


def rules(config: ModelConfig) -> Sequence[Rule]:
    """The encoder's, and the dense layer between tables and network if they differ in width."""
    return (*bert.rules(config), rename("embeddings_project.{p}", "encoder.embed.project.{p}"))


def language_rules(config: ModelConfig) -> Sequence[Rule]:
    """The generator's head, whose dense layer leads back to the width of the tables."""
    assert isinstance(config.head, LanguageHead)
    return (
        output_matrix("generator_lm_head.weight", config, "encoder.embed.tokens.weight"),
        rename("generator_lm_head.bias", "head.output.bias"),
        rename("generator_predictions.dense.{p}", "head.dense.{p}"),
        *norm("generator_predictions.LayerNorm", "head.norm"),
    )


HEADS = (
    encoder_heads.language("ElectraForMaskedLM", PREFIX, language_rules, exact_gelu()),
    HeadMap("ElectraModel", {"head.kind": "none"}),
    encoder_heads.classifier(
        "ElectraForSequenceClassification",
        PREFIX,
        classifier_dropout(),
        pooler="classifier.dense",
        output="classifier.out_proj",
        activation="gelu",
    ),
    tagging("ElectraForTokenClassification", PREFIX),
    # The discriminator: one number a token, above 0 where it takes the token for a replaced one.
    HeadMap(
        "ElectraForPreTraining",
        {
            "head.kind": "tagging",
            "head.n_labels": 1,
            "head.labels": ["replaced"],
            "head.transform": True,
            "head.transform_norm": False,
        },
        lambda _: (
            rename("discriminator_predictions.dense.{p}", "head.dense.{p}"),
            rename("discriminator_predictions.dense_prediction.{p}", "head.output.{p}"),
        ),
        prefix=PREFIX,
    ),
    span("ElectraForQuestionAnswering", prefix=PREFIX),
)

FAMILY = Family(model_type="electra", constants=CONSTANTS, fields=FIELDS, rules=rules, heads=HEADS)
