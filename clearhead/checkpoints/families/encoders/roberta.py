"""RoBERTa and its relatives: ELECTRA, MPNet and ESM."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from clearhead.checkpoints.families.encoders.bert import (
    BLOCK,
    EMBEDDINGS,
    NORM_AFTER,
    POST_NORM,
    TABLE,
    UNREAD,
    bert_bare,
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
    encoder_sizes,
    output_matrix,
    span,
    without,
)
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import (
    Field,
    FieldRules,
    Only,
    Values,
    computed,
    ignored,
    only,
    same,
)
from clearhead.checkpoints.weights.mapping import Rule, derive, ignore, leave_out, modules, rename, renames
from clearhead.config import ModelConfig, Rotary
from clearhead.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor


def after_padding(padding: int, _: Values) -> int:
    """The row of the first position: that after the padding's."""
    if type(padding) is not int or padding < 0:
        raise ValueError("a row of the position table")
    return padding + 1


def _roberta_length(rows: int, values: Values) -> int:
    padding = values["pad_token_id"]
    if rows <= padding + 1:
        raise UserError(f"expected more rows than pad_token_id={padding} and those before it, got {rows}")
    return rows - padding - 1


def roberta_positions(rows: int = 512) -> tuple[Field, ...]:
    """The positions. Rows up to pad_token_id are unused; max_position_embeddings, by default `rows`, includes them."""
    return (
        computed(
            "pad_token_id",
            "encoder.positions.offset",
            read=after_padding,
            write=lambda offset, _: offset - 1,
            default=1,
            null=True,
        ),
        computed(
            "max_position_embeddings",
            "encoder.positions.max_length",
            read=_roberta_length,
            write=lambda length, ours: length + ours["encoder"]["positions"]["offset"],
            default=rows,
        ),
    )


def exact_gelu() -> Field:
    """hidden_act, which must be gelu: their masked-word head always uses gelu, and ours uses the network's."""

    def read(name: str, _: Values) -> None:
        if name != "gelu":
            raise UserError(f"expected gelu, as this head always has it, got {name!r}, which is not supported")

    return computed("hidden_act", read=read, write=lambda *_: "gelu", default="gelu")


def roberta_classifier(architecture: str, prefix: str, dropout: Field) -> HeadMap:
    """The head has a pooler of its own and does not use one trained with the encoder."""
    return encoder_classifier(
        architecture,
        prefix,
        dropout,
        pooler="classifier.dense",
        output="classifier.out_proj",
        others=(no_pooler(f"{prefix}pooler.dense"),),
    )


def roberta_heads(name: str, prefix: str = "roberta.", dropout: Field | None = None) -> tuple[HeadMap, ...]:
    """The classes of one name. Their classifier dropout also acts before the dense layer in training.

    `dropout` is the field of that dropout.
    """
    unread = no_pooler(f"{prefix}pooler.dense")

    def words(config: ModelConfig) -> Sequence[Rule]:
        return *words_rules(config, "lm_head", {"dense": "dense", "layer_norm": "norm"}), unread

    return (
        encoder_language(f"{name}ForMaskedLM", prefix, words, exact_gelu()),
        bert_bare(f"{name}Model"),
        roberta_classifier(f"{name}ForSequenceClassification", prefix, dropout or classifier_dropout()),
        bert_tagging(f"{name}ForTokenClassification", prefix, dropout),
        span(f"{name}ForQuestionAnswering", unread, prefix=prefix),
    )


ROBERTA = Family(
    "roberta",
    POST_NORM,
    (*encoder_fields(vocab_size=50_265), *roberta_positions()),
    bert_rules,
    roberta_heads("Roberta"),
)


# --- ELECTRA (Clark et al. 2020) -----------------------------------------------------------------------------------


def _width(size: int, values: Values) -> int | None:
    """The width of the tables, if a dense layer follows: none where it is the width of the network."""
    return None if size == values["hidden_size"] else size


def _written_width(width: int | None, ours: Values) -> int:
    if width == ours["encoder"]["d_model"]:
        raise ValueError(width)
    return width or ours["encoder"]["d_model"]


def electra_language_rules(config: ModelConfig) -> Sequence[Rule]:
    """The generator's head, whose dense layer leads back to the width of the tables."""
    return (
        output_matrix("generator_lm_head.weight", config, TABLE),
        rename("generator_lm_head.bias", "head.output.bias"),
        *renames("generator_predictions", "head", {"dense": "dense", "LayerNorm": "norm"}),
    )


ELECTRA = Family(
    model_type="electra",
    constants=POST_NORM,
    fields=(
        *encoder_fields(
            vocab_size=30_522,
            max_position_embeddings=512,
            hidden_size=256,
            num_attention_heads=4,
            intermediate_size=1024,
        ),
        computed("embedding_size", "encoder.input.width", read=_width, write=_written_width, default=128),
        # Of the class that chooses among texts, which is not here.
        ignored("summary_*"),
    ),
    # A dense layer lies between tables and network if they differ in width.
    rules=lambda config: (*bert_rules(config), *renames("", "encoder.embed", {"embeddings_project": "project"})),
    heads=(
        encoder_language("ElectraForMaskedLM", "electra.", electra_language_rules, exact_gelu()),
        bare("ElectraModel"),
        encoder_classifier(
            "ElectraForSequenceClassification",
            "electra.",
            classifier_dropout(),
            pooler="classifier.dense",
            output="classifier.out_proj",
            activation="gelu",
        ),
        bert_tagging("ElectraForTokenClassification", "electra."),
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
            prefix="electra.",
            names={
                "discriminator_predictions.dense": "dense",
                "discriminator_predictions.dense_prediction": "output",
            },
        ),
        span("ElectraForQuestionAnswering", prefix="electra."),
    ),
)


# --- MPNet (Song et al. 2020) --------------------------------------------------------------------------------------

UNUSED = 2
"""Rows of the position table before the first text position: they follow the id of padding, which is fixed at 1."""


def _mpnet_length(rows: int, _: Values) -> int:
    if rows <= UNUSED:
        raise UserError(f"expected more rows than the {UNUSED} that no text uses, got {rows}")
    return rows - UNUSED


def mpnet_rules(_: ModelConfig) -> Sequence[Rule]:
    """The embeddings, the biases by distance, and the blocks, whose norms follow their branches."""
    names = {
        **EMBEDDINGS,
        "embeddings.position_embeddings": "positions.added.table",
        "encoder.relative_attention_bias": "positions.scored.table",
        "attention.attn.q": "attn.q",
        "attention.attn.k": "attn.k",
        "attention.attn.v": "attn.v",
        "attention.attn.o": "attn.out",
        "attention.LayerNorm": "attn_norm",
        "intermediate.dense": "ffn.up",
        "output.dense": "ffn.down",
        "output.LayerNorm": "ffn_norm",
    }
    return *modules("encoder", "encoder.layer.{i}", names), UNREAD


MPNET = Family(
    model_type="mpnet",
    constants={
        **NORM_AFTER,
        "encoder.positions.kind": "together",
        "encoder.positions.added.kind": "learned",
        "encoder.positions.added.offset": UNUSED,
        "encoder.positions.scored.kind": "relative",
        "encoder.positions.scored.n_buckets": 32,
        "encoder.positions.scored.max_distance": 128,
    },
    fields=(
        *encoder_sizes(vocab_size=30_527),
        computed(
            "max_position_embeddings",
            "encoder.positions.added.max_length",
            read=_mpnet_length,
            write=lambda length, _: length + UNUSED,
            default=512,
        ),
        # The reference library sizes its table by the first field, and counts in 32 buckets whatever it says. It does
        # not count cells of the id 1 as positions, whatever the second says.
        *only(relative_attention_num_buckets=32, pad_token_id=UNUSED - 1),
        # Its code asks for it, to refuse a number of heads that does not fit.
        ignored("embedding_size"),
    ),
    rules=mpnet_rules,
    heads=roberta_heads("MPNet", "mpnet.", same("hidden_dropout_prob", "head.dropout", default=0.1)),
)


# --- ESM-1b (Rives et al. 2021) and ESM-2 (Lin et al. 2022) --------------------------------------------------------

FREQUENCIES = "rotary_embeddings.inv_freq"
OLDER = "encoder.layer.{i}.attention.self.rotary_embeddings.inv_freq"
SAME = 1e-6
"""Largest relative difference of a stored frequency that is a rounding of float32."""

CONSTANTS = {"encoder.activation": "gelu", "encoder.embed_dropout": 0.0, "init.depth_scaled": False}

# --- fields ----------------------------------------------------------------------------------------------------------


def _masked(is_left_out: bool | None, values: Values) -> int | None:
    """The id of the mask token if the network leaves its vector out."""
    mask = values["mask_token_id"]
    if is_left_out and (type(mask) is not int or mask < 0):
        raise UserError(f"expected mask_token_id to be the id of a token with token_dropout=true, got {short(mask)}")
    return mask if is_left_out else None


ESM_FIELDS: FieldRules = (
    same("vocab_size", "encoder.input.vocab_size"),
    *without(encoder_sizes(), "hidden_act"),
    computed(
        "token_dropout",
        "encoder.input.mask_id",
        read=_masked,
        write=lambda one, _: one is not None,
        default=False,
        null=True,
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


ESM_ANGLES: FieldRules = (
    same("rope_theta", "encoder.positions.base", default=10_000.0),
    computed("inv_freq", "encoder.positions.frequencies", read=_rounded, default=None),
    same("max_position_embeddings", "encoder.positions.trained_length", default=1026),
    Only("head_dim", None),  # The reference makes as many angles of it.
)

# --- tensors ---------------------------------------------------------------------------------------------------------


def esm_rules(_: ModelConfig) -> Sequence[Rule]:
    """The embeddings and the blocks, whose norms are before their branches."""
    names = {
        "embeddings.layer_norm": "embed.norm",
        "encoder.emb_layer_norm_after": "final_norm",
        "attention.LayerNorm": "attn_norm",
        "LayerNorm": "ffn_norm",
        **EMBEDDINGS,
        **BLOCK,
    }
    contacts = leave_out("contact_head.regression.{p}", because="no head here predicts contacts")
    return *modules("encoder", "encoder.layer.{i}", names), UNREAD, contacts


def rotary_rules(config: ModelConfig) -> Sequence[Rule]:
    """The rules of `esm_rules`, with the frequencies that other libraries read from the file."""
    positions, width = config.first.positions, config.first.head_width
    assert isinstance(positions, Rotary)

    def frequencies() -> "Tensor":
        import torch

        if positions.frequencies is not None:
            return torch.tensor(positions.frequencies)
        return 1.0 / (positions.base ** (torch.arange(0, width, 2, dtype=torch.float32) / width))

    unread = ignore("embeddings.position_embeddings.weight", OLDER)
    return (unread, *esm_rules(config), derive(FREQUENCIES, frequencies))


def esm_language_rules(config: ModelConfig) -> Sequence[Rule]:
    """The head of the masked-word objective, with one bias."""
    return (
        output_matrix("lm_head.decoder.weight", config, TABLE),
        rename("lm_head.bias", "head.output.bias"),
        *renames("lm_head", "head", {"dense": "dense", "layer_norm": "norm"}),
        no_pooler("esm.pooler.dense"),
    )


# --- families --------------------------------------------------------------------------------------------------------

DROPOUT = same("hidden_dropout_prob", "head.dropout", default=0.1)
ESM_HEADS = (
    encoder_language("EsmForMaskedLM", "esm.", esm_language_rules),
    bert_bare("EsmModel"),
    roberta_classifier("EsmForSequenceClassification", "esm.", DROPOUT),
    bert_tagging("EsmForTokenClassification", "esm.", DROPOUT),
)

ESM_ROTARY = Family(
    model_type="esm",
    constants={**CONSTANTS, "encoder.positions.kind": "rotary"},
    fields=(*ESM_FIELDS, *ESM_ANGLES),
    rules=rotary_rules,
    heads=ESM_HEADS,
    only_if={"position_embedding_type": "rotary"},
    stored={"inv_freq": (FREQUENCIES, *(OLDER.format(i=layer) for layer in "0*"))},
)

ESM_LEARNED = Family(
    model_type="esm",
    constants={**CONSTANTS, "encoder.positions.kind": "learned"},
    fields=(
        Only("position_embedding_type", "absolute"),
        *ESM_FIELDS,
        *roberta_positions(1026),
        ignored("rope_theta", "head_dim"),
    ),
    rules=esm_rules,
    heads=ESM_HEADS,
)
ESM = (ESM_ROTARY, ESM_LEARNED)
