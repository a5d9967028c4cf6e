"""Entries shared by several families: names of activations, and the labels and dropout of a classifier."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

from clearhead.config import ModelConfig, NoHead
from clearhead.config.heads import ProblemType
from clearhead.errors import UserError
from clearhead.weights.documents import brief
from clearhead.weights.fields import Field, Values, computed
from clearhead.weights.mapping import Rule, rename

FULL, LOCAL = "full_attention", "sliding_attention"
"""Their names for a layer that sees all keys and for one with a window."""
MOST_LAYERS = 1024
"""Upper limit on the length of lists with an item for each layer."""
MOST_LABELS = 1 << 20
"""Upper limit on the number of labels."""
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}
"""Their names -> ours. If several map to one, the first is written."""


def labels(default: int = 2) -> tuple[Field, ...]:
    """id2label and num_labels -> the number of labels, and their names unless these are just numbers.

    As in the reference library, label2id has no effect, and a num_labels that contradicts id2label makes new names.
    """

    def numbered(n: int) -> list[str]:
        return [f"LABEL_{i}" for i in range(n)]

    def names(values: Values) -> list[str]:
        id2label, n = values["id2label"], values["num_labels"]
        if id2label is None:
            return numbered(default if n is None else n)
        by_id = {int(key): name for key, name in id2label.items()}
        if sorted(by_id) != [*range(len(id2label))]:
            raise UserError(f"expected a name for each number from 0 to {len(id2label) - 1}, got {brief(id2label)}")
        if not all(isinstance(name, str) for name in by_id.values()):
            raise UserError(f"expected a name for each number, got {brief(id2label)}")
        return [by_id[i] for i in range(len(by_id))] if n in (None, len(by_id)) else numbered(n)

    def called(values: Values) -> list[str]:
        found = names(values)
        return [] if found == numbered(len(found)) else found

    def written(head: Values) -> list[str]:
        return list(head["labels"]) or numbered(head["n_labels"])

    def id2label(_: Any, ours: Values) -> dict[str, str]:
        return {str(i): name for i, name in enumerate(written(ours["head"]))}

    def label2id(_: Any, ours: Values) -> dict[str, int]:
        return {name: i for i, name in enumerate(written(ours["head"]))}

    return (
        computed(
            "id2label",
            "head.n_labels",
            read=lambda _, values: len(names(values)),
            write=id2label,
            default=None,
            like={},
        ),
        computed(
            "label2id", "head.labels", read=lambda _, values: called(values), write=label2id, default=None, like={}
        ),
        replace(
            computed("num_labels", read=_count, write=lambda *_: None, default=None),
            extra=True,
        ),
    )


def _count(n: int | None, _: Values) -> None:
    if n is not None and (type(n) is not int or not 0 < n <= MOST_LABELS):
        raise UserError(f"expected a whole number from 1 to {MOST_LABELS}, got {brief(n)}")


def problem_type() -> Field:
    """The kind of a classifier's outputs: one class, several classes or numbers."""
    known = get_args(ProblemType)

    def read(value: str | None, _: Values) -> str | None:
        if value is not None and value not in known:
            raise UserError(f"expected one of {', '.join(known)}, got {brief(value)}")
        return value

    return replace(
        computed("problem_type", "head.problem_type", read=read, write=lambda value, _: value, default=None), extra=True
    )


def head_width() -> Field:
    """head_dim, which no config class here defines but their code reads. It must follow from the other fields."""

    def read(width: int | None, values: Values) -> None:
        expected = values["hidden_size"] // (values["num_attention_heads"] or 1)
        if width not in (None, expected):
            raise UserError(f"expected hidden_size / num_attention_heads, {expected}, got {brief(width)}")

    return replace(computed("head_dim", read=read, write=lambda *_: None, default=None), extra=True)


def tagging_dropout() -> tuple[Field, ...]:
    """The dropout of a decoder's tagging head, which no config class defines but any config may set."""
    return (
        computed(
            "classifier_dropout",
            "head.dropout",
            read=lambda share, _: 0.1 if share is None else share,
            write=lambda share, _: share,
            default=None,
        ),
    )


def pooler_rules(config: ModelConfig) -> Sequence[Rule]:
    """The pooler of a model without a head, if it has one."""
    assert isinstance(config.head, NoHead)
    return (rename("pooler.dense.{p}", "head.pooler.{p}"),) if config.head.pooler else ()
