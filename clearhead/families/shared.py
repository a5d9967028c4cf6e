"""Entries that several families share: names of activations, the labels of a classifier, and its dropout."""

from collections.abc import Sequence
from typing import Any

from pydantic import JsonValue

from clearhead.config import ModelConfig, NoHead
from clearhead.errors import UserError
from clearhead.weights.documents import brief
from clearhead.weights.fields import Field, Values, computed
from clearhead.weights.mapping import Rule, rename

FULL, LOCAL = "full_attention", "sliding_attention"
"""What configs call a layer that sees all keys, and one with a window."""
MOST_LAYERS = 1024
"""More than any stack may have: a list for each layer is never longer."""
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}
"""Their names -> ours; the first of several for one is written."""


def labels(default: int = 2) -> tuple[Field, ...]:
    """id2label -> how many labels there are, and what they are called where they have more than numbers."""

    def numbered(n: int) -> list[str]:
        return [f"LABEL_{i}" for i in range(n)]

    def names(id2label: dict[str, str]) -> list[str]:
        found = [id2label[key] for key in sorted(id2label, key=int)]
        if not all(isinstance(name, str) for name in found):
            raise UserError(f"expected a name for each number, got {brief(id2label)}")
        return [] if found == numbered(len(found)) else found

    def written(head: Values) -> list[str]:
        return list(head["labels"]) or numbered(head["n_labels"])

    def id2label(_: Any, ours: Values) -> dict[str, str]:
        return {str(i): name for i, name in enumerate(written(ours["head"]))}

    def label2id(_: Any, ours: Values) -> dict[str, int]:
        return {name: i for i, name in enumerate(written(ours["head"]))}

    absent: dict[str, JsonValue] = {str(i): name for i, name in enumerate(numbered(default))}
    return (
        computed(
            "id2label",
            "head.n_labels",
            read=lambda value, _: len(names(value) or value),
            write=id2label,
            default=absent,
            like=absent,
        ),
        computed(
            "label2id", "head.labels", read=lambda _, values: names(values["id2label"]), write=label2id, default=None
        ),
    )


def tagging_dropout() -> tuple[Field, ...]:
    """The dropout of a decoder's tagging head, which no config class has and any config may say."""
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
    """Of a model without a head: the pooler, where there is one."""
    assert isinstance(config.head, NoHead)
    return (rename("pooler.dense.{p}", "head.pooler.{p}"),) if config.head.pooler else ()
