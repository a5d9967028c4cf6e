"""RoBERTa and its relatives: ELECTRA, MPNet and ESM."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from clearhead.checkpoints.families.encoders.bert import (
    POST_NORM,
    bert_bare,
    bert_no_pooler,
    bert_rules,
    bert_tagging,
    classifier_dropout,
    encoder_fields,
    norm,
    output_bias,
)
from clearhead.checkpoints.families.family import Document, Family, HeadMap
from clearhead.checkpoints.families.shared import (
    encoder_classifier,
    encoder_language,
    encoder_sizes,
    output_matrix,
    span,
    with_defaults,
)
from clearhead.checkpoints.weights.documents import short
from clearhead.checkpoints.weights.fields import Field, FieldRule, Only, Values, computed, ignored, same
from clearhead.checkpoints.weights.mapping import Rule, derive, ignore, leave_out, rename, renames
from clearhead.config import LanguageHead, ModelConfig, Rotary
from clearhead.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

ROBERTA_PREFIX = "roberta."


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
        ),
        computed(
            "max_position_embeddings",
            "encoder.positions.max_length",
            read=_roberta_length,
            write=lambda length, ours: length + ours["encoder"]["positions"]["offset"],
            default=rows,
            like=rows,
        ),
    )


def exact_gelu() -> Field:
    """hidden_act, which must be gelu: their masked-word head always uses gelu, and ours uses the network's."""

    def read(name: str, _: Values) -> None:
        if name != "gelu":
            raise UserError(f"expected gelu, as this head always has it, got {name!r}, which is not supported")

    return computed("hidden_act", read=read, write=lambda *_: "gelu", default="gelu")


def roberta_language_rules(config: ModelConfig, prefix: str = ROBERTA_PREFIX) -> Sequence[Rule]:
    """The head of the masked-word objective."""
    assert isinstance(config.head, LanguageHead)
    return (
        output_matrix("lm_head.decoder.weight", config, "encoder.embed.tokens.weight"),
        *output_bias("lm_head.bias", "lm_head.decoder.bias", tied=config.head.tied),
        rename("lm_head.dense.{p}", "head.dense.{p}"),
        *norm("lm_head.layer_norm", "head.norm"),
        bert_no_pooler(prefix),
    )


def roberta_classifier(architecture: str, prefix: str, dropout: Field) -> HeadMap:
    """The head has a pooler of its own and does not use one trained with the encoder."""
    return encoder_classifier(
        architecture,
        prefix,
        dropout,
        pooler="classifier.dense",
        output="classifier.out_proj",
        others=(bert_no_pooler(prefix),),
    )


def roberta_heads(name: str, prefix: str = ROBERTA_PREFIX, dropout: Field | None = None) -> tuple[HeadMap, ...]:
    """The classes of one name. Their classifier dropout also acts before the dense layer in training.

    `dropout` is the field of that dropout.
    """
    return (
        encoder_language(
            f"{name}ForMaskedLM", prefix, lambda config: roberta_language_rules(config, prefix), exact_gelu()
        ),
        bert_bare(f"{name}Model"),
        roberta_classifier(f"{name}ForSequenceClassification", prefix, dropout or classifier_dropout()),
        bert_tagging(f"{name}ForTokenClassification", prefix, dropout),
        span(f"{name}ForQuestionAnswering", bert_no_pooler(prefix), prefix=prefix),
    )


def family(model_type: str, name: str, *, vocab_size: int, prefix: str = ROBERTA_PREFIX) -> Family:
    """The same network under another name, with another tokenizer."""
    return Family(
        model_type,
        POST_NORM,
        (*encoder_fields(vocab_size), *roberta_positions()),
        bert_rules,
        roberta_heads(name, prefix),
    )


ROBERTA = family("roberta", "Roberta", vocab_size=50_265)
XLM_ROBERTA = family("xlm-roberta", "XLMRoberta", vocab_size=30_522)
CAMEMBERT = family("camembert", "Camembert", vocab_size=30_522)
DATA2VEC = family("data2vec-text", "Data2VecText", vocab_size=30_522, prefix="data2vec_text.")


# --- ELECTRA (Clark et al. 2020) -----------------------------------------------------------------------------------

ELECTRA_PREFIX = "electra."


def _width(size: int, values: Values) -> int | None:
    """The width of the tables, if a dense layer follows: none where it is the width of the network."""
    return None if size == values["hidden_size"] else size


def _written_width(width: int | None, ours: Values) -> int:
    if width == ours["encoder"]["d_model"]:
        raise ValueError(width)
    return width or ours["encoder"]["d_model"]


ELECTRA_FIELDS = (
    *with_defaults(encoder_fields(30_522), hidden_size=256, num_attention_heads=4, intermediate_size=1024),
    same("max_position_embeddings", "encoder.positions.max_length", default=512),
    computed("embedding_size", "encoder.input.width", read=_width, write=_written_width, default=128, like=128),
    # Of the class that chooses among texts, which is not here.
    ignored("summary_*"),
)


def electra_rules(config: ModelConfig) -> Sequence[Rule]:
    """The encoder's, and the dense layer between tables and network if they differ in width."""
    return (*bert_rules(config), rename("embeddings_project.{p}", "encoder.embed.project.{p}"))


def electra_language_rules(config: ModelConfig) -> Sequence[Rule]:
    """The generator's head, whose dense layer leads back to the width of the tables."""
    assert isinstance(config.head, LanguageHead)
    return (
        output_matrix("generator_lm_head.weight", config, "encoder.embed.tokens.weight"),
        rename("generator_lm_head.bias", "head.output.bias"),
        rename("generator_predictions.dense.{p}", "head.dense.{p}"),
        *norm("generator_predictions.LayerNorm", "head.norm"),
    )


ELECTRA_HEADS = (
    encoder_language("ElectraForMaskedLM", ELECTRA_PREFIX, electra_language_rules, exact_gelu()),
    HeadMap("ElectraModel", {"head.kind": "none"}),
    encoder_classifier(
        "ElectraForSequenceClassification",
        ELECTRA_PREFIX,
        classifier_dropout(),
        pooler="classifier.dense",
        output="classifier.out_proj",
        activation="gelu",
    ),
    bert_tagging("ElectraForTokenClassification", ELECTRA_PREFIX),
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
        prefix=ELECTRA_PREFIX,
    ),
    span("ElectraForQuestionAnswering", prefix=ELECTRA_PREFIX),
)

ELECTRA = Family(
    model_type="electra", constants=POST_NORM, fields=ELECTRA_FIELDS, rules=electra_rules, heads=ELECTRA_HEADS
)


# --- MPNet (Song et al. 2020) --------------------------------------------------------------------------------------

UNUSED = 2
"""Rows of the position table before the first text position: they follow the id of padding, which is fixed at 1."""


def _mpnet_length(rows: int, _: Values) -> int:
    if rows <= UNUSED:
        raise UserError(f"expected more rows than the {UNUSED} that no text uses, got {rows}")
    return rows - UNUSED


MPNET_FIELDS = (
    same("vocab_size", "encoder.input.vocab_size", default=30_527),
    *encoder_sizes(dropout=0.1),
    computed(
        "max_position_embeddings",
        "encoder.positions.added.max_length",
        read=_mpnet_length,
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


def mpnet_rules(_: ModelConfig) -> Sequence[Rule]:
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


MPNET = Family(
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
    fields=MPNET_FIELDS,
    rules=mpnet_rules,
    heads=roberta_heads("MPNet", "mpnet.", same("hidden_dropout_prob", "head.dropout", default=0.1)),
)


# --- ESM-1b (Rives et al. 2021) and ESM-2 (Lin et al. 2022) --------------------------------------------------------

ESM_PREFIX = "esm."
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


ESM_FIELDS: tuple[FieldRule, ...] = (
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


ESM_ANGLES: tuple[FieldRule, ...] = (
    same("rope_theta", "encoder.positions.base", default=10_000.0),
    computed("inv_freq", "encoder.positions.frequencies", read=_rounded, default=None),
    same("max_position_embeddings", "encoder.positions.trained_length", default=1026),
    Only("head_dim", None),  # The reference makes as many angles of it.
)

# --- tensors ---------------------------------------------------------------------------------------------------------


def esm_rules(_: ModelConfig) -> Sequence[Rule]:
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
        *renames(theirs, ours, names),
        rename("encoder.emb_layer_norm_after.{p}", "encoder.final_norm.{p}"),
        ignore("embeddings.position_ids"),
        leave_out("contact_head.regression.{p}", because="no head here predicts contacts"),
    )


def learned_rules(config: ModelConfig) -> Sequence[Rule]:
    """With a table of positions."""
    return (*esm_rules(config), rename("embeddings.position_embeddings.weight", "encoder.positions.table.weight"))


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
    return (*esm_rules(config), derive(FREQUENCIES, frequencies), unread)


def esm_language_rules(config: ModelConfig) -> Sequence[Rule]:
    """The head of the masked-word objective, with one bias."""
    assert isinstance(config.head, LanguageHead)
    return (
        output_matrix("lm_head.decoder.weight", config, TABLE),
        rename("lm_head.bias", "head.output.bias"),
        rename("lm_head.dense.{p}", "head.dense.{p}"),
        rename("lm_head.layer_norm.{p}", "head.norm.{p}"),
        bert_no_pooler(ESM_PREFIX),
    )


# --- families --------------------------------------------------------------------------------------------------------

DROPOUT = same("hidden_dropout_prob", "head.dropout", default=0.1)
ESM_HEADS = (
    encoder_language("EsmForMaskedLM", ESM_PREFIX, esm_language_rules),
    bert_bare("EsmModel"),
    roberta_classifier("EsmForSequenceClassification", ESM_PREFIX, DROPOUT),
    bert_tagging("EsmForTokenClassification", ESM_PREFIX, DROPOUT),
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
    rules=learned_rules,
    heads=ESM_HEADS,
)
ESM = (ESM_ROTARY, ESM_LEARNED)
