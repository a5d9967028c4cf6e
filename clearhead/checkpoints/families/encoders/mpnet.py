"""The encoder of Song et al. 2020: learned positions, and beside them one bias by distance for all layers."""

from collections.abc import Sequence

from clearhead.checkpoints.families.encoders.bert import norm
from clearhead.checkpoints.families.encoders.roberta import heads
from clearhead.checkpoints.families.family import Family
from clearhead.checkpoints.families.shared import encoder_sizes
from clearhead.checkpoints.weights.fields import Only, Values, computed, ignored, same
from clearhead.checkpoints.weights.mapping import Rule, ignore, rename
from clearhead.config import ModelConfig
from clearhead.errors import UserError

UNUSED = 2
"""Rows of the position table before the first text position: they follow the id of padding, which is fixed at 1."""


def _length(rows: int, _: Values) -> int:
    if rows <= UNUSED:
        raise UserError(f"expected more rows than the {UNUSED} that no text uses, got {rows}")
    return rows - UNUSED


FIELDS = (
    same("vocab_size", "encoder.input.vocab_size", default=30_527),
    *encoder_sizes(dropout=0.1),
    computed(
        "max_position_embeddings",
        "encoder.positions.added.max_length",
        read=_length,
        write=lambda length, _: length + UNUSED,
        default=512,
        like=512,
    ),
    # The reference library sizes its table by this field, and counts in 32 buckets whatever it says.
    Only("relative_attention_num_buckets", 32),
    # It does not count cells of the id 1 as positions, whatever this field says.
    Only("pad_token_id", UNUSED - 1),
    # Its code asks for it, to refuse a number of heads that does not fit.
    ignored("embedding_size"),
)


def rules(_: ModelConfig) -> Sequence[Rule]:
    """The embeddings, the biases by distance, and the blocks, whose norms follow their branches."""
    theirs, ours = "encoder.layer.{i}", "encoder.blocks.{i}"
    return (
        rename("embeddings.word_embeddings.weight", "encoder.embed.tokens.weight"),
        rename("embeddings.position_embeddings.weight", "encoder.positions.added.table.weight"),
        rename("encoder.relative_attention_bias.weight", "encoder.positions.scored.table.weight"),
        *norm("embeddings.LayerNorm", "encoder.embed.norm"),
        *(rename(f"{theirs}.attention.attn.{n}.{{p}}", f"{ours}.attn.{n}.{{p}}") for n in "qkv"),
        rename(f"{theirs}.attention.attn.o.{{p}}", f"{ours}.attn.out.{{p}}"),
        *norm(f"{theirs}.attention.LayerNorm", f"{ours}.attn_norm"),
        rename(f"{theirs}.intermediate.dense.{{p}}", f"{ours}.ffn.up.{{p}}"),
        rename(f"{theirs}.output.dense.{{p}}", f"{ours}.ffn.down.{{p}}"),
        *norm(f"{theirs}.output.LayerNorm", f"{ours}.ffn_norm"),
        ignore("embeddings.position_ids"),
    )


FAMILY = Family(
    model_type="mpnet",
    constants={
        "encoder.input.kind": "tokens",
        "encoder.input.norm": True,
        "encoder.positions.kind": "together",
        "encoder.positions.added.kind": "learned",
        "encoder.positions.added.offset": UNUSED,
        "encoder.positions.scored.kind": "relative",
        "encoder.positions.scored.n_buckets": 32,
        "encoder.positions.scored.max_distance": 128,
        "encoder.norm_place": "post",
        "init.depth_scaled": False,
    },
    fields=FIELDS,
    rules=rules,
    heads=heads("MPNet", "mpnet.", same("hidden_dropout_prob", "head.dropout", default=0.1)),
)
