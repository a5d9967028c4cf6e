"""What simple methods say of texts: the most frequent label or the mean, and a linear model of TF-IDF."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np

from clearhead.brief import brief
from clearhead.config.heads import ProblemType

Texts: TypeAlias = Sequence[tuple[str, ...]]
MOST_TEXTS, MOST_CHARACTERS = 50_000, 10_000_000
"""The training texts that a linear model is fitted to, at most."""
MOST_LABELLED = 3_000_000
"""Their number times that of the labels, at most."""
FEW_LABELS = 10
"""Up to this number of labels, one model tells all from each other. Beyond it, one model for each label is faster."""
MANY = 2_000_000
"""In more characters than these, words and pairs of words that only one text has are left out."""
STRENGTHS = (1.0, 10.0)
"""The penalties among which validation chooses: the C of a logistic regression, the alpha of a ridge regression."""


@dataclass(frozen=True)
class Answers:
    """What a method says of the texts of each split: n classes, n v of bool, or n numbers."""

    __repr__ = brief

    name: str
    outputs: Mapping[str, np.ndarray]
    setting: str = ""
    about: str = ""


def majority(targets: np.ndarray, held_out: Mapping[str, Texts], problem_type: ProblemType) -> Answers:
    """The most frequent label; every label that half of the texts have; or the mean number."""
    match problem_type:
        case "single_label_classification":
            name, answer = "majority", np.bincount(targets).argmax()
        case "multi_label_classification":
            shares = targets.mean(0)
            name, answer = "majority", (shares > 0.5) | (shares == shares.max())
        case "regression":
            name, answer = "mean", targets.mean()
    about = "" if find_spec("sklearn") else "TF-IDF needs pip install 'clearhead[score]'"
    return Answers(name, {split: np.array([answer] * len(texts)) for split, texts in held_out.items()}, about=about)


def linear(
    train: Texts, targets: np.ndarray, held_out: Mapping[str, Texts], problem_type: ProblemType
) -> Iterator[Answers]:
    """The answers of a linear model of TF-IDF for each of `STRENGTHS`; for numbers of pairs also their cosine.

    The features are words and pairs of words. Two texts give those of both, their difference, and the cosine of their
    words. Many texts are sampled. There are no answers where the texts have no words or scikit-learn is not
    installed.
    """
    if not find_spec("sklearn"):
        return
    from scipy.sparse import csr_matrix, hstack
    from sklearn.feature_extraction.text import TfidfVectorizer

    n_labels = 1 if problem_type == "regression" else int(targets.max()) + 1 if targets.ndim == 1 else targets.shape[1]
    some = sample(train, n_labels)
    about = "" if len(some) == len(train) else f"fitted to {len(some):,} of {len(train):,} texts"
    learned = targets[some]
    flat, n = both([train[i] for i in some]), len(some)
    least = 2 if sum(map(len, flat)) > MANY else 1
    counts = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), min_df=least)
    words = TfidfVectorizer(sublinear_tf=True) if len(flat) > n else None
    try:
        rows: Any = counts.fit_transform(flat)
    except ValueError:  # An empty vocabulary.
        return

    def features(rows: Any, flat: Sequence[str], n: int) -> tuple[Any, np.ndarray | None]:
        if words is None:
            return rows, None
        alike = csr_matrix(words.transform(flat[:n])).multiply(words.transform(flat[n:]))
        first, second = rows[:n], rows[n:]
        cosines = np.asarray(alike.sum(1))
        return hstack([first, second, abs(first - second), csr_matrix(cosines)]).tocsr(), cosines[:, 0]

    if words is not None:
        words.fit(flat)
    known, new = features(rows, flat, n)[0], dict[str, tuple[Any, np.ndarray | None]]()
    for split, texts in held_out.items():
        new[split] = features(counts.transform(both(texts)), both(texts), len(texts))
    is_number = problem_type == "regression"
    if not is_number and learned.ndim == 1 and len(np.unique(learned)) < 2:
        return
    for strength in STRENGTHS:
        model = estimator(strength, problem_type, n_labels)
        with warnings.catch_warnings(action="ignore"):  # Of a label that all texts have, and of many iterations.
            model.fit(known, learned)
        name, letter = ("TF-IDF + ridge", "alpha") if is_number else ("TF-IDF + LR", "C")
        outputs = {split: np.asarray(model.predict(x)).astype(targets.dtype) for split, (x, _) in new.items()}
        yield Answers(name, outputs, f"{letter} = {strength:g}", about)
    cosines = {split: cosine for split, (_, cosine) in new.items() if cosine is not None}
    if is_number and cosines:
        yield Answers("TF-IDF cosine", cosines, about=about)


def both(texts: Texts) -> list[str]:
    """The first texts of all examples, then the second ones if there are some."""
    return [text for side in zip(*texts, strict=True) for text in side]


def estimator(strength: float, problem_type: ProblemType, n_labels: int) -> Any:
    """The linear model of this strength, not yet fitted."""
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.multiclass import OneVsRestClassifier

    if problem_type == "regression":
        return Ridge(alpha=strength)
    if problem_type == "single_label_classification" and n_labels <= FEW_LABELS:
        return LogisticRegression(C=strength, max_iter=1000)
    return OneVsRestClassifier(LogisticRegression(C=strength, solver="liblinear"))


def sample(texts: Texts, n_labels: int) -> Sequence[int]:
    """The numbers of the texts that a model is fitted to: all, or as many at random as the limits allow."""
    order = np.random.default_rng(0).permutation(len(texts))
    sizes = np.array([sum(map(len, texts[i])) for i in order]).cumsum()
    n = min(MOST_TEXTS, MOST_LABELLED // n_labels, int(np.searchsorted(sizes, MOST_CHARACTERS, side="right")))
    return range(len(texts)) if n >= len(texts) else np.sort(order[: max(n, 1)]).tolist()
