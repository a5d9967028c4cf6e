"""A model as a function of batches: for Ray Data, Spark and plain Python. docs/batch.md shows each.

Every class is called with a batch and returns it with new columns. A batch is a dict of numpy arrays, a pandas
DataFrame or a pyarrow Table. An instance holds settings alone, so that it is small to pickle; each process loads the
model at its first call, and keeps it. A blank text, None or NaN has no values: None, NaN or an empty list.
"""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, TypeAlias, TypeVar, cast

import numpy as np
import torch

from clearhead.api import Model, load
from clearhead.api.predicting import numbered, task_of
from clearhead.capture.passes import Plan, Positions, recorded, windows
from clearhead.config import ClassificationHead
from clearhead.errors import UserError

__all__ = ["Capture", "Classify", "Embed", "Predict", "Tag", "Translate"]

Columns: TypeAlias = Mapping[str, Sequence[Any] | np.ndarray]
"""A value for each row, by the column's name."""
B = TypeVar("B")
WINDOW = 1 << 24
"""Numbers that `Capture` records before it hands them out."""


@cache
def _loaded(name: str, device: str, int8: bool, int4: bool) -> Model:
    """The model of this process."""
    return load(name, device=device, int8=int8, int4=int4)


@dataclass(frozen=True)
class Batched(ABC):
    """Base of the classes: the model's folder or name, and the column of the texts."""

    model: str
    text: str = "text"
    """Column of the texts."""
    device: str = field(default="cpu", kw_only=True)
    int8: bool = field(default=False, kw_only=True)
    int4: bool = field(default=False, kw_only=True)

    def __call__(self, batch: B) -> B:
        """The batch with the new columns. Raises UserError for a column that is missing or holds no text."""
        return _with(batch, self.columns(_loaded(str(self.model), self.device, self.int8, self.int4), batch))

    @abstractmethod
    def columns(self, model: Model, batch: object) -> Columns:
        """The new columns."""


@dataclass(frozen=True)
class Embed(Batched):
    """Adds `embedding`: the vector of each text, of length 1. The vector of a blank text is NaN."""

    prompt_name: str | None = None

    def columns(self, model: Model, batch: object) -> Columns:
        texts = texts_in(batch, self.text)
        known = [text for text in texts if text.strip()]
        found = np.full((len(texts), model.config.output.d_model), np.nan, np.float32)
        if known:
            vectors = model.embed(known, prompt_name=self.prompt_name).float().cpu().numpy()
            found = np.full((len(texts), vectors.shape[1]), np.nan, np.float32)
            found[[i for i, text in enumerate(texts) if text.strip()]] = vectors
        return {"embedding": found}


@dataclass(frozen=True)
class Classify(Batched):
    """Adds `label` and `score`; `labels` and `scores` if a text may have several labels; `value` for a regression.

    `labels` are your own labels, for a model of natural language inference, as in `Model.classify`.
    """

    text_pair: str | None = None
    """Column of the second texts, where two texts have one label together."""
    labels: tuple[str, ...] = ()
    template: str | None = None
    several: bool = False

    def columns(self, model: Model, batch: object) -> Columns:
        if self.labels:
            rows, kind = self.entailed(model, texts_in(batch, self.text)), "multi_label_classification" * self.several
        else:
            head = model.config.head
            rows: Any = model.predict(rows_in(batch, self.text, self.text_pair))
            kind = head.problem_type if isinstance(head, ClassificationHead) else None
        if kind == "regression":
            return {"value": [row["values"][0] if row else math.nan for row in rows]}
        if kind == "multi_label_classification":
            labels = [row.get("labels", []) for row in rows]
            scores = [[row["probabilities"][label] for label in own] for row, own in zip(rows, labels, strict=True)]
            return {"labels": labels, "scores": scores}
        scores = [row["probabilities"][row["label"]] if row else math.nan for row in rows]
        return {"label": [row.get("label") for row in rows], "score": scores}

    def entailed(self, model: Model, texts: Sequence[str]) -> list[dict[str, Any]]:
        """The predictions with the labels that the texts entail."""
        known = [text for text in texts if text.strip()]
        given = {} if self.template is None else {"template": self.template}
        rows = iter(model.classify(known, labels=self.labels, several=self.several, **given) if known else ())
        return [_row(next(rows)) if text.strip() else {} for text in texts]


@dataclass(frozen=True)
class Predict(Batched):
    """Adds a column for each value of the model's predictions, as in `clearhead predict --json`."""

    text_pair: str | None = None
    """Column of the second texts, such as the contexts of questions."""

    def columns(self, model: Model, batch: object) -> Columns:
        return _by_name(model.predict(rows_in(batch, self.text, self.text_pair)))


@dataclass(frozen=True)
class Tag(Batched):
    """Adds the values of a model that tags words, such as `clearhead tag --json` prints."""

    def columns(self, model: Model, batch: object) -> Columns:
        task = task_of(model, verb="tag", name=self.model)
        return _by_name([prediction.values for prediction in numbered(model, task, texts_in(batch, self.text))])


@dataclass(frozen=True)
class Translate(Batched):
    """Adds `translation`. `settings` change the search, such as {"beams": 1}. A blank text has a blank translation."""

    settings: Mapping[str, Any] = field(default_factory=dict)

    def columns(self, model: Model, batch: object) -> Columns:
        texts = texts_in(batch, self.text)
        return {"translation": model.translate(texts, **self.settings)}


@dataclass(frozen=True)
class Capture(Batched):
    """Adds a column for each address: the values of the forward pass there, as in `Model.trace`.

    All axes of a value but that of positions become one. `positions` takes the mean or the maximum over a text's
    tokens, the first or the last token, or all of them, as a list for each text. `clearhead explore` shows the
    addresses of a model, and `clearhead capture` writes the values of whole files to a folder.
    """

    addresses: tuple[str, ...] = ()
    target: str | None = None
    """Column of the targets of an encoder-decoder."""
    positions: Positions = "mean"

    def columns(self, model: Model, batch: object) -> Columns:
        if not self.addresses:
            raise UserError("addresses: expected at least one, such as encoder.blocks.0.resid_post, got none")
        texts = texts_in(batch, self.text)
        targets = [None] * len(texts) if self.target is None else texts_in(batch, self.target)
        pairs = [text if other is None else (text, other) for text, other in zip(texts, targets, strict=True)]
        plan = Plan.of(model, self.addresses, positions=self.positions)
        found: dict[str, list[np.ndarray | None]] = {str(site.address): [None] * len(texts) for site in plan.sites}
        for window in windows(plan, pairs, WINDOW):
            values = recorded(plan, window, torch.float32)
            for site in plan.sites:
                rows, starts = np.unique(window.rows(site.group)["text"], return_index=True)
                vectors = np.split(values[str(site.address)].flatten(1).numpy(), starts[1:])
                for row, mine in zip(rows.tolist(), vectors, strict=len(rows) > 0):
                    found[str(site.address)][row] = mine if self.positions == "all" else mine[0]
        return {address: self.together(rows) for address, rows in found.items()}

    def together(self, values: Sequence[np.ndarray | None]) -> Sequence[Any] | np.ndarray:
        """One array of vectors, or lists of vectors."""
        known = next((value for value in values if value is not None), None)
        if self.positions == "all" or known is None:
            return [[] if value is None else value.tolist() for value in values]
        return np.stack([np.full_like(known, np.nan) if value is None else value for value in values])


# --- values ---------------------------------------------------------------------------------------------------------


def _row(found: Sequence[tuple[str, float]]) -> dict[str, Any]:
    """The prediction of one text, from its labels with their scores."""
    chosen = [label for label, score in found if score > 0.5]
    return {"label": found[0][0], "labels": chosen, "probabilities": dict(found)}


def _by_name(rows: Sequence[Mapping[str, Any]]) -> Columns:
    """A column for each name of a value."""
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}


# --- batches --------------------------------------------------------------------------------------------------------


def texts_in(batch: object, column: str) -> list[str]:
    """The texts in a column; None and NaN are blank. Raises UserError if the column is missing or holds no text."""
    kind, table = _kind(batch), cast(Any, batch)
    names = [*map(str, table.column_names if kind == "arrow" else table)]
    if column not in names:
        raise UserError(f"batch: expected a column {column!r}, got {', '.join(names)}; name it with text=")
    values: list[object] = table[column].to_pylist() if kind == "arrow" else [*table[column]]
    wrong = next((x for x in values if not (isinstance(x, str) or x is None or x != x)), None)
    if wrong is not None:
        raise UserError(f"batch: expected text in column {column!r}, got {type(wrong).__name__}")
    return [value if isinstance(value, str) else "" for value in values]


def rows_in(batch: object, text: str, text_pair: str | None) -> Sequence[str | tuple[str, str]]:
    """The texts of a column, or the pairs of two."""
    texts = texts_in(batch, text)
    return texts if text_pair is None else [*zip(texts, texts_in(batch, text_pair), strict=True)]


def _kind(batch: object) -> Literal["dict", "pandas", "arrow"]:
    """The kind of a batch. Raises UserError for any other."""
    if isinstance(batch, Mapping):
        return "dict"
    # Without its import there is no batch of that library.
    if (pandas := sys.modules.get("pandas")) is not None and isinstance(batch, pandas.DataFrame):
        return "pandas"
    if (arrow := sys.modules.get("pyarrow")) is not None and isinstance(batch, arrow.Table):
        return "arrow"
    got = type(batch).__name__
    raise UserError(f"batch: expected a dict of arrays, a pandas DataFrame or a pyarrow Table, got {got}")


def _with(batch: B, columns: Columns) -> B:
    """The batch with these columns, in place of any of the same names."""
    arrays = {name: _array(values) for name, values in columns.items()}
    table: Any = batch
    match _kind(batch):
        case "dict":
            return cast(B, {**table, **arrays})
        case "pandas":
            return table.assign(**{name: [*array] for name, array in arrays.items()})
        case "arrow":
            import pyarrow as pa

            for name, array in arrays.items():
                table = table.drop_columns([name]) if name in table.column_names else table
                flat = pa.FixedSizeListArray.from_arrays(array.ravel(), array.shape[1]) if array.ndim == 2 else None
                table = table.append_column(name, pa.array([*array]) if flat is None else flat)
            return table


def _array(values: Sequence[Any] | np.ndarray) -> np.ndarray:
    """Numbers as an array of numbers, anything else as an array of objects."""
    if isinstance(values, np.ndarray):
        return values
    if all(isinstance(value, float) for value in values):
        return np.array(values, np.float64)
    objects = np.empty(len(values), object)
    objects[:] = values
    return objects
