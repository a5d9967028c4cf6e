"""The encoder of Sanh et al. 2019: BERT's without token types and without a pooler."""

from collections.abc import Sequence

from clearhead.checkpoints.families.encoders import encoder_heads
from clearhead.checkpoints.families.encoders.bert import CONSTANTS
from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.shared import ACTIVATIONS, output_matrix, span
from clearhead.checkpoints.weights.fields import Alias, ignored, named, same
from clearhead.checkpoints.weights.mapping import Rule, ignore, rename
from clearhead.config import LanguageHead, ModelConfig

PREFIX = "distilbert."

FIELDS = (
    same("vocab_size", "encoder.input.vocab_size", default=30_522),
    same("max_position_embeddings", "encoder.positions.max_length", default=512),
    same("dim", "encoder.d_model", default=768),
    same("n_layers", "encoder.n_layers", default=6),
    same("n_heads", "encoder.n_heads", default=12),
    same("hidden_dim", "encoder.d_ff", default=3072),
    named("activation", "encoder.activation", names=ACTIVATIONS, default="gelu"),
    same("initializer_range", "init.std", default=0.02),
    # In the reference library it does not act on what attention adds to the residual stream.
    same("dropout", "encoder.dropout", default=0.1),
    same("attention_dropout", "encoder.attn_dropout", default=0.1),
    Alias("hidden_size", of="dim"),
    Alias("num_attention_heads", of="n_heads"),
    Alias("num_hidden_layers", of="n_layers"),
    # It decides how the position table is drawn. A checkpoint has the table itself.
    ignored("sinusoidal_pos_embds"),
    ignored("qa_dropout", "seq_classif_dropout", "output_past", "tie_weights_"),
)


def rules(_: ModelConfig) -> Sequence[Rule]:
    """The embeddings and the blocks, whose norms follow their branches."""
    theirs, ours = "transformer.layer.{i}", "encoder.blocks.{i}"
    parts = {
        **{f"attention.{n}_lin": f"attn.{n}" for n in "qkv"},
        "attention.out_lin": "attn.out",
        "sa_layer_norm": "attn_norm",
        "ffn.lin1": "ffn.up",
        "ffn.lin2": "ffn.down",
        "output_layer_norm": "ffn_norm",
    }
    return (
        rename("embeddings.word_embeddings.weight", "encoder.embed.tokens.weight"),
        rename("embeddings.position_embeddings.weight", "encoder.positions.table.weight"),
        rename("embeddings.LayerNorm.{p}", "encoder.embed.norm.{p}"),
        *(rename(f"{theirs}.{there}.{{p}}", f"{ours}.{here}.{{p}}") for there, here in parts.items()),
        ignore("embeddings.position_ids"),
    )


def language_rules(config: ModelConfig) -> Sequence[Rule]:
    """The head of the masked-word objective."""
    assert isinstance(config.head, LanguageHead)
    return (
        output_matrix("vocab_projector.weight", config, "encoder.embed.tokens.weight"),
        rename("vocab_projector.bias", "head.output.bias"),
        rename("vocab_transform.{p}", "head.dense.{p}"),
        rename("vocab_layer_norm.{p}", "head.norm.{p}"),
    )


HEADS = (
    encoder_heads.language("DistilBertForMaskedLM", PREFIX, language_rules),
    HeadMap("DistilBertModel", {"head.kind": "none"}),
    encoder_heads.classifier(
        "DistilBertForSequenceClassification",
        PREFIX,
        same("seq_classif_dropout", "head.dropout", default=0.2),
        pooler="pre_classifier",
        activation="relu",
    ),
    # Its dropout is that of the network.
    encoder_heads.tagging("DistilBertForTokenClassification", PREFIX, same("dropout", "head.dropout", default=0.1)),
    span("DistilBertForQuestionAnswering", prefix=PREFIX, fields=(same("qa_dropout", "head.dropout", default=0.1),)),
)

FAMILY = Family(
    model_type="distilbert",
    constants=CONSTANTS | {"encoder.norm_eps": 1e-12},
    fields=FIELDS,
    rules=rules,
    heads=HEADS,
)
