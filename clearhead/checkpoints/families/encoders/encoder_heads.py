"""Heads of encoders that predict masked words, a class of the text, or a class of each token."""

from clearhead.checkpoints.families.family import HeadMap, Rules
from clearhead.checkpoints.families.shared import labels, problem_type
from clearhead.checkpoints.weights.fields import FieldRule, same
from clearhead.checkpoints.weights.mapping import Rule, rename


def language(architecture: str, prefix: str, rules: Rules, *fields: FieldRule, also: tuple[str, ...] = ()) -> HeadMap:
    """Masked words: a dense layer with a norm, then the matrix over the vocabulary with a bias."""
    return HeadMap(
        architecture,
        {"head.kind": "language", "head.bias": True, "head.transform": True},
        rules,
        (same("tie_word_embeddings", "head.tied", default=True), *fields),
        prefix=prefix,
        also=also,
    )


def classifier(
    architecture: str,
    prefix: str,
    *fields: FieldRule,
    pooler: str,
    output: str = "classifier",
    activation: str | None = None,
    others: tuple[Rule, ...] = (),
) -> HeadMap:
    """A class of the text. `pooler` and `output` are the names of its dense layer and its matrix.

    `fields` are those besides the labels, `others` further rules.
    """
    rules = (rename(f"{pooler}.{{p}}", "head.pooler.{p}"), rename(f"{output}.{{p}}", "head.output.{p}"), *others)
    constants: dict[str, object] = {"head.kind": "classification", "head.pooler": True}
    return HeadMap(
        architecture,
        constants if activation is None else constants | {"head.pooler_activation": activation},
        lambda _: rules,
        (*labels(), problem_type(), *fields),
        prefix=prefix,
    )


def tagging(architecture: str, prefix: str, dropout: FieldRule, *others: Rule) -> HeadMap:
    """A class of each token. `dropout` is the field of the head's dropout, `others` are further rules."""
    rules = (rename("classifier.{p}", "head.output.{p}"), *others)
    return HeadMap(architecture, {"head.kind": "tagging"}, lambda _: rules, (*labels(), dropout), prefix=prefix)
