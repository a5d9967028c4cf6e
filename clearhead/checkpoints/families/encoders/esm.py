"""The encoders of proteins of Rives et al. 2021 (ESM-1b, learned positions) and Lin et al. 2022 (ESM-2, rotary).

Their head for contacts between residues is left out.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from clearhead.checkpoints.families.encoders import encoder_heads, roberta
from clearhead.checkpoints.families.encoders.bert import bare, no_pooler, norm, tagging
from clearhead.checkpoints.families.family import Document, Family
from clearhead.checkpoints.families.shared import encoder_sizes, output_matrix
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import FieldRule, Only, Values, computed, ignored, same
from clearhead.checkpoints.weights.mapping import Rule, derive, ignore, leave_out, rename
from clearhead.config import LanguageHead, ModelConfig, Rotary
from clearhead.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

PREFIX = "esm."
TABLE = "encoder.embed.tokens.weight"
FREQUENCIES = "rotary_embeddings.inv_freq"
OLDER = "encoder.layer.{i}.attention.self.rotary_embeddings.inv_freq"
SAME = 1e-6
"""Largest relative difference of a stored frequency that is a rounding of float32."""

CONSTANTS: Document = {
    "encoder.input.kind": "tokens",
    "encoder.activation": "gelu",
    "encoder.embed_dropout": 0.0,
    "init.depth_scaled": False,
}

# --- fields ----------------------------------------------------------------------------------------------------------


def _masked(is_left_out: bool | None, values: Values) -> int | None:
    """The id of the mask token if the network leaves its vector out."""
    mask = values["mask_token_id"]
    if is_left_out and (type(mask) is not int or mask < 0):
        raise UserError(f"expected mask_token_id to be the id of a token with token_dropout=true, got {short(mask)}")
    return mask if is_left_out else None


FIELDS: tuple[FieldRule, ...] = (
    same("vocab_size", "encoder.input.vocab_size"),
    *(field for field in encoder_sizes(dropout=0.1) if getattr(field, "theirs", "") != "hidden_act"),
    computed(
        "token_dropout", "encoder.input.mask_id", read=_masked, write=lambda one, _: one is not None, default=False
    ),
    computed("mask_token_id", write=lambda _, ours: ours["encoder"]["input"]["mask_id"], default=None),
    computed("emb_layer_norm_before", "encoder.input.norm", read=lambda norm, _: bool(norm), default=None),
    Only("is_folding_model", False),
    ignored("esmfold_config", "vocab_list", "position_embedding_type", "embedding_size"),
)


def _rounded(frequencies: Sequence[float] | None, values: Values) -> Sequence[float] | None:
    """The stored frequencies; None if they follow from the base."""
    if frequencies is None:
        return None
    width = values["hidden_size"] // values["num_attention_heads"]
    usual = [values["rope_theta"] ** (-i / width) for i in range(0, width, 2)]
    alike = len(usual) == len(frequencies) and all(
        abs(a - b) <= SAME * b for a, b in zip(frequencies, usual, strict=True)
    )
    return None if alike else frequencies


ANGLES: tuple[FieldRule, ...] = (
    same("rope_theta", "encoder.positions.base", default=10_000.0),
    computed("inv_freq", "encoder.positions.frequencies", read=_rounded, default=None),
    same("max_position_embeddings", "encoder.positions.trained_length", default=1026),
    Only("head_dim", None),  # The reference makes as many angles of it.
)

# --- tensors ---------------------------------------------------------------------------------------------------------


def rules(_: ModelConfig) -> Sequence[Rule]:
    """The embeddings and the blocks, whose norms are before their branches."""
    theirs, ours = "encoder.layer.{i}", "encoder.blocks.{i}"
    names = {
        **{f"attention.self.{there}": f"attn.{there[0]}" for there in ("query", "key", "value")},
        "attention.output.dense": "attn.out",
        "intermediate.dense": "ffn.up",
        "output.dense": "ffn.down",
    }
    return (
        rename("embeddings.word_embeddings.weight", TABLE),
        rename("embeddings.layer_norm.{p}", "encoder.embed.norm.{p}"),
        *norm(f"{theirs}.attention.LayerNorm", f"{ours}.attn_norm"),
        *norm(f"{theirs}.LayerNorm", f"{ours}.ffn_norm"),
        *(rename(f"{theirs}.{there}.{{p}}", f"{ours}.{here}.{{p}}") for there, here in names.items()),
        rename("encoder.emb_layer_norm_after.{p}", "encoder.final_norm.{p}"),
        ignore("embeddings.position_ids"),
        leave_out("contact_head.regression.{p}", because="no head here predicts contacts"),
    )


def learned_rules(config: ModelConfig) -> Sequence[Rule]:
    """With a table of positions."""
    return (*rules(config), rename("embeddings.position_embeddings.weight", "encoder.positions.table.weight"))


def rotary_rules(config: ModelConfig) -> Sequence[Rule]:
    """With the frequencies that other libraries read from the file."""
    positions, width = config.first.positions, config.first.head_width
    assert isinstance(positions, Rotary)

    def frequencies() -> "Tensor":
        import torch

        if positions.frequencies is not None:
            return torch.tensor(positions.frequencies)
        return 1.0 / (positions.base ** (torch.arange(0, width, 2, dtype=torch.float32) / width))

    unread = ignore("embeddings.position_embeddings.weight", OLDER)
    return (*rules(config), derive(FREQUENCIES, frequencies), unread)


def language_rules(config: ModelConfig) -> Sequence[Rule]:
    """The head of the masked-word objective, with one bias."""
    assert isinstance(config.head, LanguageHead)
    return (
        output_matrix("lm_head.decoder.weight", config, TABLE),
        rename("lm_head.bias", "head.output.bias"),
        rename("lm_head.dense.{p}", "head.dense.{p}"),
        rename("lm_head.layer_norm.{p}", "head.norm.{p}"),
        no_pooler(PREFIX),
    )


# --- families --------------------------------------------------------------------------------------------------------

DROPOUT = same("hidden_dropout_prob", "head.dropout", default=0.1)
HEADS = (
    encoder_heads.language("EsmForMaskedLM", PREFIX, language_rules),
    bare("EsmModel"),
    roberta.classifier("EsmForSequenceClassification", PREFIX, DROPOUT),
    tagging("EsmForTokenClassification", PREFIX, DROPOUT),
)

ROTARY = Family(
    model_type="esm",
    constants={**CONSTANTS, "encoder.positions.kind": "rotary"},
    fields=(*FIELDS, *ANGLES),
    rules=rotary_rules,
    heads=HEADS,
    only_if={"position_embedding_type": "rotary"},
    stored={"inv_freq": (FREQUENCIES, *(OLDER.format(i=layer) for layer in "0*"))},
)

LEARNED = Family(
    model_type="esm",
    constants={**CONSTANTS, "encoder.positions.kind": "learned"},
    fields=(
        Only("position_embedding_type", "absolute"),
        *FIELDS,
        *roberta.positions(1026),
        ignored("rope_theta", "head_dim"),
    ),
    rules=learned_rules,
    heads=HEADS,
)
