"""Heads of decoders whose names and biases differ from Llama's."""

from collections.abc import Sequence

from clearhead.checkpoints.families.family import HeadMap
from clearhead.checkpoints.families.shared import labels, last_token_classifier, output_matrix, span, tagging_dropout
from clearhead.checkpoints.weights.fields import FieldRule, same
from clearhead.checkpoints.weights.mapping import Rule, rename
from clearhead.config import ModelConfig


def language(
    architecture: str,
    prefix: str,
    *fields: FieldRule,
    tied: bool = True,
    bias: bool = False,
    older: tuple[str, ...] = (),
    also: tuple[str, ...] = (),
) -> HeadMap:
    """Words. `older` are further names of the output matrix, and `fields` the head's own."""

    def rules(config: ModelConfig) -> Sequence[Rule]:
        names = ("lm_head", *older)
        matrices = [output_matrix(f"{name}.weight", config, "decoder.embed.tokens.weight") for name in names]
        return (*matrices, rename("lm_head.bias", "head.output.bias")) if bias else matrices

    return HeadMap(
        architecture,
        {"head.kind": "language", "head.bias": bias},
        rules,
        (same("tie_word_embeddings", "head.tied", default=tied), *fields),
        prefix=prefix,
        also=also,
    )


def tags(architecture: str, prefix: str, dropout: FieldRule | None = None) -> HeadMap:
    """Tags, with a bias."""
    return HeadMap(
        architecture,
        {"head.kind": "tagging"},
        lambda _: (rename("classifier.{p}", "head.output.{p}"),),
        (*labels(), dropout or tagging_dropout()),
        prefix=prefix,
    )


def others(
    name: str, prefix: str, kinds: str = "bare class tags span", dropout: FieldRule | None = None
) -> list[HeadMap]:
    """The heads besides the language head, of the kinds that a family has."""
    made = {
        "bare": HeadMap(f"{name}Model", {"head.kind": "none"}),
        "class": last_token_classifier(f"{name}ForSequenceClassification", prefix),
        "tags": tags(f"{name}ForTokenClassification", prefix, dropout),
        "span": span(f"{name}ForQuestionAnswering", prefix=prefix),
    }
    return [made[kind] for kind in kinds.split()]
