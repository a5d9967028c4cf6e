"""The encoder of Lan et al. 2019: BERT's with narrow tables, and with blocks that run several times."""

from collections.abc import Sequence

from clearhead.checkpoints.families.encoders import encoder_heads
from clearhead.checkpoints.families.encoders.bert import CONSTANTS, encoder_fields, norm, output_bias
from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.shared import output_matrix, span, with_defaults
from clearhead.checkpoints.weights.fields import Only, ignored, same
from clearhead.checkpoints.weights.mapping import Rule, leave_out, rename
from clearhead.config import LanguageHead, ModelConfig

PREFIX = "albert."
PARTS = {
    **{f"attention.{name}": f"attn.{name[0]}" for name in ("query", "key", "value")},
    "attention.dense": "attn.out",
    "ffn": "ffn.up",
    "ffn_output": "ffn.down",
}
NORMS = {"attention.LayerNorm": "attn_norm", "full_layer_layer_norm": "ffn_norm"}

FIELDS = (
    *with_defaults(
        encoder_fields(30_000),
        hidden_size=4096,
        num_attention_heads=64,
        intermediate_size=16_384,
        hidden_act="gelu_new",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    ),
    same("embedding_size", "encoder.input.width", default=128),
    same("num_hidden_groups", "encoder.n_groups", default=1),
    same("max_position_embeddings", "encoder.positions.max_length", default=512),
    ignored("classifier_dropout_prob", "net_structure_type", "gap_size", "num_memory_blocks", "down_scale_factor"),
    # Several different blocks that repeat together.
    Only("inner_group_num", 1),
)


def rules(config: ModelConfig) -> Sequence[Rule]:
    """The embeddings, the dense layer to the width of the network, and the first block of each group."""
    stack = config.output
    found: list[Rule] = [
        rename("embeddings.word_embeddings.weight", "encoder.embed.tokens.weight"),
        rename("embeddings.position_embeddings.weight", "encoder.positions.table.weight"),
        rename("embeddings.token_type_embeddings.weight", "encoder.embed.types.weight"),
        *norm("embeddings.LayerNorm", "encoder.embed.norm"),
        rename("encoder.embedding_hidden_mapping_in.{p}", "encoder.embed.project.{p}"),
    ]
    for group in range(stack.n_layers // stack.repeats):
        theirs = f"encoder.albert_layer_groups.{group}.albert_layers.0"
        ours = f"encoder.blocks.{group * stack.repeats}"
        found += [rename(f"{theirs}.{there}.{{p}}", f"{ours}.{here}.{{p}}") for there, here in PARTS.items()]
        for there, here in NORMS.items():
            found += norm(f"{theirs}.{there}", f"{ours}.{here}")
    return found


def no_pooler(prefix: str) -> Rule:
    """Leaves out the checkpoint's pooler."""
    return leave_out(f"{prefix}pooler.{{p}}", because="this head reads the states, not the pooled one")


def language_rules(config: ModelConfig) -> Sequence[Rule]:
    """The head of the masked-word objective, whose dense layer leads back to the width of the tables."""
    assert isinstance(config.head, LanguageHead)
    return (
        output_matrix("predictions.decoder.weight", config, "encoder.embed.tokens.weight"),
        *output_bias("predictions.bias", "predictions.decoder.bias", tied=config.head.tied),
        rename("predictions.dense.{p}", "head.dense.{p}"),
        *norm("predictions.LayerNorm", "head.norm"),
        leave_out("sop_classifier.classifier.{p}", because="no head here tells which of two sentences is first"),
        no_pooler(PREFIX),
    )


DROPOUT = same("classifier_dropout_prob", "head.dropout", default=0.1)
HEADS = (
    encoder_heads.language("AlbertForMaskedLM", PREFIX, language_rules, also=("AlbertForPreTraining",)),
    HeadMap(
        "AlbertModel",
        {"head.kind": "none"},
        lambda _: (rename("pooler.{p}", "head.pooler.{p}"),),
        presence={"head.pooler": "pooler.weight"},
    ),
    encoder_heads.classifier("AlbertForSequenceClassification", PREFIX, DROPOUT, pooler="albert.pooler"),
    encoder_heads.tagging("AlbertForTokenClassification", PREFIX, DROPOUT, no_pooler(PREFIX)),
    span("AlbertForQuestionAnswering", no_pooler(PREFIX), prefix=PREFIX),
)

FAMILY = Family(model_type="albert", constants=CONSTANTS, fields=FIELDS, rules=rules, heads=HEADS)
