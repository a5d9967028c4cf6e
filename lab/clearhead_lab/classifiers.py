"""Classifiers of scikit-learn with intervals of their accuracy, and linear probes."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

Classes: TypeAlias = NDArray[np.int64]
Matrix: TypeAlias = Any
"""n d: a numpy array or a sparse matrix of scipy."""

STRENGTHS = [0.01, 0.1, 1.0, 10.0]
"""1 / the weight decay of the regression. Cross-validation chooses one, so that each kind of vector has its best."""


def predicted(train: Matrix, classes: Classes, test: Matrix, *, strength: float | None = None) -> Classes:
    """The class of each row of `test` by a logistic regression, in which every class of `train` counts alike.

    Cross-validation chooses the strength, unless one is given.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    model = LogisticRegression(C=strength or 1.0, class_weight="balanced", max_iter=2000)
    if strength is None:
        model = GridSearchCV(model, {"C": STRENGTHS}, scoring="balanced_accuracy", cv=3)
    return model.fit(train, classes).predict(test)


def standardised(train: NDArray[np.floating], test: NDArray[np.floating]) -> tuple[Matrix, Matrix]:
    """Shifts and scales the columns of both so that those of `train` have mean 0 and variance 1."""
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(train)
    return scaler.transform(train), scaler.transform(test)


def counts(train: Sequence[str], test: Sequence[str], *, tf_idf: bool = False) -> tuple[Matrix, Matrix]:
    """The number of each word in each text, or TF-IDF; spaces separate words. `train` has the vocabulary."""
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

    words: Callable[[str], list[str]] = str.split
    vectorizer = (TfidfVectorizer if tf_idf else CountVectorizer)(analyzer=words)
    return vectorizer.fit_transform(train), vectorizer.transform(test)


def resampled(right: NDArray[np.bool_], classes: Classes, *, n: int = 2000) -> NDArray[np.float64]:
    """n: the accuracy, the mean over classes, of n samples with replacement from the examples of each class.

    The samples are the same in each call, so that a difference of two results compares equal examples
    (Efron and Tibshirani 1993, paired bootstrap).
    """
    random = np.random.default_rng(0)
    found: list[NDArray[np.float64]] = []
    for one in np.unique(classes):
        examples = right[classes == one]
        found.append(examples[random.integers(len(examples), size=(n, len(examples)))].mean(1))
    return np.mean(found, axis=0)


def mean_over_classes(right: NDArray[np.bool_], classes: Classes) -> float:
    """The accuracy on each class, averaged: 1 / number of classes for a constant answer, however frequent it is."""
    return float(np.mean([right[classes == one].mean() for one in np.unique(classes)]))


def interval(samples: NDArray[np.float64]) -> tuple[float, float]:
    """The interval that contains 95% of the samples."""
    low, high = np.percentile(samples, [2.5, 97.5])
    return float(low), float(high)


RIDGE = 1e-3


def readable(vectors: Tensor, labels: Tensor, *, n_fitted: int) -> float:
    """The accuracy of `read_by_probe` on new vectors."""
    return read_by_probe(vectors, labels, n_fitted=n_fitted).double().mean().item()


def read_by_probe(vectors: Tensor, labels: Tensor, *, n_fitted: int) -> Tensor:
    """m: whether a linear classifier is right about each new vector   (Alain and Bengio 2016, linear probes)

    Ridge regression to one-hot labels, n, is fitted to the first `n_fitted` vectors, n d, and judged on the others.
    """
    x = F.pad(vectors.double(), (0, 1), value=1.0)
    fitted, wanted = x[:n_fitted], F.one_hot(labels[:n_fitted]).double()
    penalty = RIDGE * n_fitted * torch.eye(x.shape[1], dtype=x.dtype)
    weight = torch.linalg.solve(fitted.mT @ fitted + penalty, fitted.mT @ wanted)
    return (x[n_fitted:] @ weight).argmax(-1) == labels[n_fitted:]
