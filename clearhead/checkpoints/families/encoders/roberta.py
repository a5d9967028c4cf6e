"""The encoder of Liu et al. 2019: BERT's without its pooler, and with positions counted from pad_token_id + 1."""

from collections.abc import Sequence

from clearhead.checkpoints.families.encoders import encoder_heads
from clearhead.checkpoints.families.encoders.bert import (
    CONSTANTS,
    bare,
    classifier_dropout,
    encoder_fields,
    no_pooler,
    norm,
    output_bias,
    rules,
    tagging,
)
from clearhead.checkpoints.families.family import Family, HeadMap
from clearhead.checkpoints.families.shared import output_matrix, span
from clearhead.checkpoints.weights.fields import Field, Values, computed
from clearhead.checkpoints.weights.mapping import Rule, rename
from clearhead.config import LanguageHead, ModelConfig
from clearhead.errors import UserError

PREFIX = "roberta."


def after_padding(padding: int, _: Values) -> int:
    """The row of the first position: that after the padding's."""
    if type(padding) is not int or padding < 0:
        raise ValueError("a row of the position table")
    return padding + 1


def _length(rows: int, values: Values) -> int:
    padding = values["pad_token_id"]
    if rows <= padding + 1:
        raise UserError(f"expected more rows than pad_token_id={padding} and those before it, got {rows}")
    return rows - padding - 1


def positions(rows: int = 512) -> tuple[Field, ...]:
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
            read=_length,
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


def language_rules(config: ModelConfig, prefix: str = PREFIX) -> Sequence[Rule]:
    """The head of the masked-word objective."""
    assert isinstance(config.head, LanguageHead)
    return (
        output_matrix("lm_head.decoder.weight", config, "encoder.embed.tokens.weight"),
        *output_bias("lm_head.bias", "lm_head.decoder.bias", tied=config.head.tied),
        rename("lm_head.dense.{p}", "head.dense.{p}"),
        *norm("lm_head.layer_norm", "head.norm"),
        no_pooler(prefix),
    )


def classifier(architecture: str, prefix: str, dropout: Field) -> HeadMap:
    """The head has a pooler of its own and does not use one trained with the encoder."""
    return encoder_heads.classifier(
        architecture,
        prefix,
        dropout,
        pooler="classifier.dense",
        output="classifier.out_proj",
        others=(no_pooler(prefix),),
    )


def heads(name: str, prefix: str = PREFIX, dropout: Field | None = None) -> tuple[HeadMap, ...]:
    """The classes of one name. Their classifier dropout also acts before the dense layer in training.

    `dropout` is the field of that dropout.
    """
    return (
        encoder_heads.language(
            f"{name}ForMaskedLM", prefix, lambda config: language_rules(config, prefix), exact_gelu()
        ),
        bare(f"{name}Model"),
        classifier(f"{name}ForSequenceClassification", prefix, dropout or classifier_dropout()),
        tagging(f"{name}ForTokenClassification", prefix, dropout),
        span(f"{name}ForQuestionAnswering", no_pooler(prefix), prefix=prefix),
    )


def family(model_type: str, name: str, *, vocab_size: int, prefix: str = PREFIX) -> Family:
    """The same network under another name, with another tokenizer."""
    return Family(model_type, CONSTANTS, (*encoder_fields(vocab_size), *positions()), rules, heads(name, prefix))


FAMILY = family("roberta", "Roberta", vocab_size=50_265)
XLM_FAMILY = family("xlm-roberta", "XLMRoberta", vocab_size=30_522)
CAMEMBERT_FAMILY = family("camembert", "Camembert", vocab_size=30_522)
DATA2VEC_FAMILY = family("data2vec-text", "Data2VecText", vocab_size=30_522, prefix="data2vec_text.")
