"""scikit-learn's interface: its estimator checks, and its tools around texts."""

import doctest
import io
import re
from typing import Any, Self

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import SkipTestWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import Tags
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks
from sklearn.utils.validation import check_is_fitted, validate_data

import clearhead.sklearn
from clearhead.errors import UserError
from clearhead.sklearn import TextClassifier, TextRegressor

pytestmark = pytest.mark.usefixtures("empty_folder")
QUICK: dict[str, Any] = {
    "steps": 2,
    "device": "cpu",
    "precision": "fp32",
    "fields": {
        "model.stacks": {"d_model": 8, "n_layers": 1, "n_heads": 1, "d_ff": 8},
        "training.matmul_precision": "highest",
        "training.optimizer.lr": 0.02,
    },
}
TEXTS = [f"{'good' if i % 2 else 'bad'} film {i % 7}" for i in range(40)]
LABELS = ["yes" if i % 2 else "no" for i in range(40)]


def texts_of(X: np.ndarray) -> list[str]:
    """Rows of numbers as texts."""
    return [" ".join(f"{j}={value:.1f}" for j, value in enumerate(row)) for row in X]


class _OnNumbers:
    """An estimator of texts that writes rows of numbers as texts: scikit-learn has checks for rows of numbers alone."""

    def __sklearn_tags__(self) -> Tags:
        tags: Any = super().__sklearn_tags__()  # pyrefly: ignore[missing-attribute]
        tags.input_tags.two_d_array, tags.input_tags.string = True, False
        for one in (tags.classifier_tags, tags.regressor_tags):
            if one is not None:
                one.poor_score = True  # After two updates.
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        super().fit(texts_of(validate_data(self, X, y)[0]), y)  # pyrefly: ignore[missing-attribute]
        return self

    def _answers(self, X: Any) -> Any:
        check_is_fitted(self)
        return super()._answers(texts_of(validate_data(self, X, reset=False)))  # pyrefly: ignore[missing-attribute]


class ClassifierOnNumbers(_OnNumbers, TextClassifier):
    """Learns to label rows of numbers."""


class RegressorOnNumbers(_OnNumbers, TextRegressor):
    """Learns a number for rows of numbers."""


@parametrize_with_checks([ClassifierOnNumbers(**QUICK), RegressorOnNumbers(**QUICK)])
def test_estimator_checks(estimator: Any, check: Any):
    check(estimator)


@pytest.mark.parametrize("estimator", [TextClassifier, TextRegressor])
def test_the_library_leaves_its_other_checks_out_for_texts(estimator: type):
    with pytest.warns(SkipTestWarning, match="string=True"):
        check_estimator(estimator(**QUICK))


def test_texts_in_the_tools_of_the_library():
    model = TextClassifier(**QUICK | {"steps": 30, "epochs": 99}).fit(TEXTS, LABELS)
    assert [*model.classes_] == ["no", "yes"]
    for X in (TEXTS, np.array(TEXTS), pd.Series(TEXTS), pd.Series(TEXTS, dtype="category")):
        assert model.score(X, LABELS) == 1.0
    chances = model.predict_proba([*TEXTS[:3], " "])
    assert np.allclose(chances.sum(axis=1), 1.0)
    assert [*chances[3]] == [0.5, 0.5], "the shares of the classes"
    assert model.model_.predict(TEXTS[:1])[0]["label"] == "no"
    joblib.dump(model, file := io.BytesIO())
    assert np.array_equal(joblib.load(file).predict_proba(TEXTS), model.predict_proba(TEXTS))
    assert np.array_equal(clone(model).fit(TEXTS, LABELS).predict_proba(TEXTS), model.predict_proba(TEXTS))
    searched = GridSearchCV(TextClassifier(**QUICK, epochs=99), {"steps": [1, 30]}, cv=2).fit(TEXTS, LABELS)
    assert searched.best_params_ == {"steps": 30}
    lower = FunctionTransformer(lambda texts: [text.lower() for text in texts])
    piped = make_pipeline(lower, TextClassifier(**QUICK))
    assert len(cross_val_score(piped, np.array(TEXTS), LABELS, cv=2)) == 2


@pytest.mark.parametrize("labels", [[0, 1], [True, False], [1.5, 2.5], ["1", "1.0"], ["", "b"], [" a", "a"]])
def test_labels_of_any_kind_come_back(labels: list[Any]):
    y = np.array([labels[i % 2] for i in range(40)])
    if labels == [1.5, 2.5]:
        y = y.astype(object).astype(str)
    model = TextClassifier(**QUICK).fit(TEXTS, y)
    assert model.predict(TEXTS).dtype == y.dtype
    assert {*model.classes_} == {*y}


def test_numbers():
    y = [i % 2 + 0.5 for i in range(40)]
    model = TextRegressor(**QUICK | {"steps": 60, "epochs": 99}).fit(TEXTS, y)
    assert model.predict(["good film 1", " "])[1] == 1.0, "the mean"
    assert model.score(TEXTS, y) > 0.5


@pytest.mark.parametrize(
    ("X", "y", "error"),
    [
        ("a text", ["a"], "X: expected a list or a column of texts, got one value; try X['text'] of a frame"),
        (pd.DataFrame({"text": TEXTS}), LABELS, "X: expected a list or a column of texts, got 2 dimensions"),
        ([*TEXTS[:-1], None], LABELS, "X: expected texts, got NoneType in row 39"),
        (TEXTS, ["a"] * 40, "y: expected two classes or more, got one class, a"),
        (TEXTS, LABELS[:-1], "inconsistent numbers of samples"),
    ],
)
def test_what_is_refused(X: Any, y: Any, error: str):
    with pytest.raises(ValueError, match=re.escape(error)):
        TextClassifier(**QUICK).fit(X, y)


def test_a_wrong_field_is_named():
    with pytest.raises(UserError, match=r"training\.clipp: no such field; did you mean clip\?"):
        TextClassifier(fields={"training.clipp": 3}).fit(TEXTS, LABELS)


def test_examples_of_docstrings_run():
    space: dict[str, Any] = {"texts": TEXTS, "labels": LABELS}
    for text in (clearhead.sklearn.__doc__, TextClassifier.__doc__):
        for example in doctest.DocTestParser().get_examples(text or ""):
            exec(example.source.replace("minutes=1", "steps=2").replace("steps=100", "steps=2"), space)
    assert space["model"].classes_.tolist() == ["no", "yes"]
