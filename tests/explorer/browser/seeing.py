"""A page on a model's input, beside what Python computes of the same."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from clearhead.api import Model
from clearhead.config import ClassificationHead
from clearhead.trace import Edit, Trace
from tests.explorer.browser.numbers import NUMBER, agrees, mismatches
from tests.explorer.browser.page import Opened, Served, Table, eventually
from tests.explorer.browser.trained import picture

SOURCE, TARGET = "seven two nine one", "eins neun zwei sieben"
INPUTS: dict[str, tuple[str, str | None]] = {
    "translator": (SOURCE, TARGET),
    "writer": ("six seven eight nine ten one", None),
    "filler": ("two three zorblax five six", None),
    "seer": ("", None),
}
IMAGE = picture(2, np.random.default_rng(3))
SPOTS: dict[str, dict[str, Any]] = {
    "translator": {"stack": "decoder", "part": "cross", "layer": 1, "query": 2},
    "writer": {"stack": "decoder", "layer": 0, "query": 3},
    "filler": {"stack": "encoder", "layer": 1, "query": 2},
    "seer": {"stack": "encoder", "layer": 1, "query": 5},
}
"""Of each model, where in it the tests of a place look."""


@dataclass(frozen=True)
class Seen:
    """A page and what Python computes of the same input."""

    opened: Opened
    served: Served
    trace: Trace
    logits: Tensor
    given: tuple[Any, str | None]
    """What both read: a text or an image, and a target."""

    def value(self, address: str) -> Any:
        """As lists of numbers, without the batch."""
        return self.trace[address][0].tolist()

    def edited(self, edit: Mapping[str, Edit]) -> Tensor:
        """The logits of the same input with this changed."""
        return self.served.trace(*self.given, edit=edit)[1]


@dataclass(frozen=True)
class Spot:
    """Where a view looks, and what Python has there."""

    seen: Seen
    name: str
    stack: str
    layer: int
    part: str
    t: int

    @property
    def model(self) -> Model:
        return self.seen.served.model

    @property
    def block(self) -> str:
        return f"{self.stack}.blocks.{self.layer}"

    @property
    def at(self) -> str:
        return f"{self.block}.{self.part}"

    def of(self, name: str) -> Tensor:
        """A value of the block at the position, the axis of positions being the last but one."""
        return self.seen.trace[f"{self.block}.{name}"][0].select(-2, self.t).double()


def right(text: str, value: float | Tensor) -> None:
    """The first number in a text."""
    found = NUMBER.search(text)
    assert found is not None, text
    assert agrees(found[0], float(value)), (text, float(value))


def all_right(text: str, *values: float | Tensor) -> None:
    """Every number in a text."""
    found = [one[0] for one in NUMBER.finditer(text)]
    assert len(found) == len(values), text
    assert all(agrees(one, float(value)) for one, value in zip(found, values, strict=True)), (text, values)


def column(rows: Sequence[Sequence[str]], values: Sequence[float] | Tensor, at: int = -1) -> None:
    """One column of a plain table shows all of these numbers, and rightly."""
    assert len(rows) == len(values), rows
    for row, value in zip(rows, values, strict=True):
        assert agrees(row[at], float(value)), (row, float(value))


def shows(seen: Seen, values: dict[str, Any]) -> None:
    are(seen.opened.figures(), values)


def are(tables: dict[str, Table], values: dict[str, Any]) -> None:
    """Figures show all of these numbers, and rightly."""
    for label, numbers in values.items():
        assert label in tables, list(tables)
        assert len(tables[label].cells) == len(numbers) * len(numbers[0]), label
        assert mismatches(tables[label].cells, numbers) == [], label


def says(opened: Opened, a: Tensor, b: Tensor | None = None, *, within: float = 0.0) -> None:
    """The page shows the likeliest answers of A and of B with these shares, `within` of them in a file."""
    model = opened.served.model
    head = model.config.head
    names = list(head.labels) if isinstance(head, ClassificationHead) else model.tokenizer.tokens(range(len(a)))
    sides = [None if logits is None else logits.softmax(-1) for logits in (a, b)]

    def is_right() -> None:
        opened.settled()
        shown = {word: texts for word, *texts in opened.chances()}
        for side, shares in enumerate(sides):
            texts = {word: both[side] for word, both in shown.items()}
            if shares is None:
                assert set(texts.values()) == {None}
                continue
            top = shares.topk(min(5 if b is None else 3, len(shares))).indices.tolist()  # Of two, each in turn.
            assert {names[i] for i in top} <= shown.keys(), shown
            for word, text in texts.items():
                share = float(shares[names.index(word)])
                assert text is not None
                if text == "–":  # A file holds B's likeliest alone.
                    assert share < 0.01
                else:
                    assert any(agrees(text, share + off) for off in (0, within, -within)), (shown, word, share)

    eventually(is_right)
