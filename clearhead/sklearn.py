"""scikit-learn's interface: `TextClassifier` and `TextRegressor` learn from texts, and fit into its pipelines.

>>> from clearhead.sklearn import TextClassifier
>>> model = TextClassifier(minutes=1).fit(texts, labels)
>>> model.predict(["What a film!"]), model.score(texts, labels)
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np

from clearhead.api import Model
from clearhead.data.tables import MISSING, written
from clearhead.errors import require
from clearhead.session.run import train

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import Tags, check_consistent_length, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import assert_all_finite, check_is_fitted
except ImportError:
    require("clearhead.sklearn", "sklearn", "score", "scikit-learn")
    raise

__all__ = ["TextClassifier", "TextRegressor"]


class _TextEstimator(BaseEstimator):
    """What both have in common."""

    model_: Model
    """The trained model, with all that a model of `clearhead.load` can do."""

    def __init__(
        self,
        *,
        minutes: float | None = None,
        steps: int | None = None,
        epochs: float | None = None,
        patience: int | None = None,
        seed: int = 0,
        device: Any = None,
        precision: Any = None,
        fields: Mapping[str, Any] | None = None,
        verbose: bool = False,
    ) -> None:
        """The parameters are those of `clearhead.train`. `fields` sets others: {"model.start": "folder"}."""
        self.minutes, self.steps, self.epochs, self.patience = minutes, steps, epochs, patience
        self.seed, self.device, self.precision = seed, device, precision
        self.fields, self.verbose = fields, verbose

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        tags.target_tags.required = True
        return tags

    def _train(self, texts: Sequence[str], labels: Sequence[object], groups: np.ndarray, problem: str) -> None:
        """Trains on texts with labels. A tenth of each group chooses the checkpoint; all do if that is none."""
        options = {name: value for name, value in self.get_params().items() if name not in ("fields", "verbose")}
        options |= {"data.problem_type": problem, **(self.fields or {})}
        order = np.random.default_rng(self.seed).permutation(len(groups))
        shuffled = [order[groups[order] == group] for group in np.unique(groups)]
        held_out = {i for some in shuffled for i in some[: len(some) // 10]}
        rows = [*zip(texts, labels, strict=True)]
        valid = [rows[i] for i in sorted(held_out)] or rows
        kept = [row for i, row in enumerate(rows) if i not in held_out]
        with TemporaryDirectory() as folder:
            options |= {"text": "text", "label": "label", "valid": valid, "out": Path(folder) / "run"}
            self.model_ = train(kept, view=self.verbose, **options).model

    def _answers(self, X: object) -> list[list[tuple[str, float]]]:
        check_is_fitted(self)
        return self.model_.classify(_texts(X))


class TextClassifier(ClassifierMixin, _TextEstimator):
    """Learns to label texts.

    >>> from sklearn.model_selection import GridSearchCV
    >>> GridSearchCV(TextClassifier(steps=100), {"seed": [0, 1]}, cv=2).fit(texts, labels).best_params_
    """

    def fit(self, X: object, y: object) -> Self:
        """Trains on texts and one label for each."""
        texts, labels = _examples(X, y)
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y: expected two classes or more, got one class, {self.classes_[0]}; add texts of others")
        self.priors_ = np.bincount(numbers) / len(numbers)
        """The share of each class, which is the answer for a blank text."""
        names = [written(label) for label in self.classes_.tolist()]
        is_clear = len({*names}) == len(names) and not {name.lower() for name in names} & MISSING
        self.names_ = names if is_clear else [f"class {i}" for i in range(len(names))]
        """The name of each class in the model."""
        self._train(texts, [self.names_[i] for i in numbers], numbers, "single_label_classification")
        return self

    def predict_proba(self, X: object) -> np.ndarray:
        """The probability of each class for each text, in the order of `classes_`."""
        return self._probabilities(X)

    def predict(self, X: object) -> np.ndarray:
        """The likeliest class of each text."""
        best = self._probabilities(X).argmax(axis=1)
        return self.classes_[best]

    def _probabilities(self, X: object) -> np.ndarray:
        answers = map(dict[str, float], self._answers(X))
        rows = [[answer.get(name, 0.0) for name in self.names_] if answer else self.priors_ for answer in answers]
        return np.array(rows, dtype=np.float64).reshape(-1, len(self.classes_))


class TextRegressor(RegressorMixin, _TextEstimator):
    """Learns a number for each text."""

    def fit(self, X: object, y: object) -> Self:
        """Trains on texts and a number for each."""
        texts, labels = _examples(X, y)
        numbers = labels.astype(np.float64)
        assert_all_finite(numbers, input_name="y")
        self.mean_ = float(numbers.mean())
        """The mean number, which is the answer for a blank text."""
        self._train(texts, numbers.tolist(), np.zeros(len(numbers)), "regression")
        return self

    def predict(self, X: object) -> np.ndarray:
        """The number of each text."""
        return np.array([answer[0][1] if answer else self.mean_ for answer in self._answers(X)], dtype=np.float64)


def _examples(X: object, y: object) -> tuple[list[str], np.ndarray]:
    """The texts, and as many labels. Raises ValueError for others."""
    if y is None:
        raise ValueError("y: expected a label for each text, but the target y is None; this requires y to be passed")
    texts, labels = _texts(X), column_or_1d(y, warn=True)
    check_consistent_length(texts, labels)
    return texts, labels


def _texts(X: Any) -> list[str]:
    """The texts of a list, an array or a column. Raises ValueError for anything else."""
    array = np.asarray(X, dtype=object)
    if array.ndim != 1:
        got = "one value" if array.ndim == 0 else f"{array.ndim} dimensions"
        raise ValueError(f"X: expected a list or a column of texts, got {got}; try X['text'] of a frame, or [text]")
    for i, text in enumerate(array):
        if not isinstance(text, str):
            raise ValueError(f"X: expected texts, got {type(text).__name__} in row {i}")
    return array.tolist()
