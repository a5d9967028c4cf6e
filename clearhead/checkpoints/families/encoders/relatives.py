"""Encoders that differ from BERT or RoBERTa in the place of a norm, a width or the positions."""

from collections.abc import Sequence

from clearhead.checkpoints.families.encoder_decoders.bart import LENGTH, wave_table
from clearhead.checkpoints.families.encoders.bert import (
    NORM_AFTER,
    POST_NORM,
    bert_heads,
    bert_rules,
    bert_tagging,
    classifier_dropout,
    encoder_fields,
    no_pooler,
    words_rules,
)
from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.shared import (
    bare,
    encoder_classifier,
    encoder_language,
    neighbours,
    span,
)
from clearhead.checkpoints.weights.fields import Only, computed, ignored, same
from clearhead.checkpoints.weights.mapping import Rule, derive, renames
from clearhead.config import ModelConfig, Rotary

# --- RemBERT (Chung et al. 2020): narrow tables, whose matrix is not that of the output -------------------------------


def _rembert_words(_: ModelConfig) -> Sequence[Rule]:
    return (
        *renames("cls.predictions", "head", {"dense": "dense", "LayerNorm": "norm", "decoder": "output"}),
        no_pooler("rembert.pooler.dense"),
    )


_, *_REMBERT_HEADS = bert_heads("RemBert", "rembert.", same("classifier_dropout_prob", "head.dropout", default=0.1))
REMBERT = Family(
    model_type="rembert",
    constants=POST_NORM,
    fields=(
        *encoder_fields(
            vocab_size=250_300,
            max_position_embeddings=512,
            hidden_size=1152,
            num_hidden_layers=32,
            num_attention_heads=18,
            intermediate_size=4608,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        ),
        same("input_embedding_size", "encoder.input.width", default=256),
        ignored("output_embedding_size", "classifier_dropout_prob"),
    ),
    rules=lambda config: (
        *renames("encoder", "encoder.embed", {"embedding_hidden_mapping_in": "project"}),
        *bert_rules(config),
    ),
    heads=(
        HeadMap(
            "RemBertForMaskedLM",
            {"head.kind": "language", "head.bias": True, "head.transform": True, "head.tied": False},
            _rembert_words,
            (
                computed(
                    "output_embedding_size",
                    "head.width",
                    read=lambda width, values: None if width == values["input_embedding_size"] else width,
                    write=lambda width, ours: width or ours["encoder"]["input"]["width"],
                    default=1664,
                ),
            ),
            prefix="rembert.",
        ),
        *_REMBERT_HEADS,
    ),
)

# --- RoFormer (Su et al. 2021): neighbours rotate ---------------------------------------------------------------------


def _roformer_words(config: ModelConfig) -> Sequence[Rule]:
    return words_rules(config, "cls.predictions", {"transform.dense": "dense", "transform.LayerNorm": "norm"})


def _roformer_rules(config: ModelConfig) -> Sequence[Rule]:
    project = renames("", "encoder.embed", {"embeddings_project": "project"})
    stack = config.output
    assert isinstance(stack.positions, Rotary)
    length = stack.positions.trained_length or LENGTH
    waves = derive("encoder.embed_positions.weight", lambda: wave_table(stack.head_width, length))
    return *neighbours(bert_rules(config), config), *project, waves


ROFORMER = Family(
    model_type="roformer",
    constants={**NORM_AFTER, "encoder.positions.kind": "rotary"},
    fields=(
        *encoder_fields(vocab_size=50_000),
        computed(
            "embedding_size",
            "encoder.input.width",
            read=lambda width, values: None if width == values["hidden_size"] else width,
            default=None,
        ),
        computed(
            "max_position_embeddings",
            "encoder.positions.trained_length",
            write=lambda length, _: length or LENGTH,
            default=1536,
        ),
        Only("rotary_value", False),
        Only("head_dim", None),
    ),
    rules=_roformer_rules,
    heads=(
        encoder_language("RoFormerForMaskedLM", "roformer.", _roformer_words),
        bare("RoFormerModel"),
        encoder_classifier(
            "RoFormerForSequenceClassification",
            "roformer.",
            classifier_dropout(),
            Only("hidden_act", "gelu"),
            pooler="classifier.dense",
            output="classifier.out_proj",
            activation="gelu",
        ),
        bert_tagging("RoFormerForTokenClassification", "roformer."),
        span("RoFormerForQuestionAnswering", prefix="roformer."),
    ),
)
