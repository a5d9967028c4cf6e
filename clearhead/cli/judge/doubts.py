"""Which labels are likely wrong, by cleanlab, from what models say that did not learn from them.

A linear model of words and letters gives a second opinion. It errs elsewhere than a network does, so both together
tell wrong labels better (docs/judging.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from clearhead.config.heads import ProblemType
from clearhead.errors import require
from clearhead.json_text import JsonObject
from clearhead.tasks.classification.data import LabelledText

FAR = 3.0
"""Deviations from the other residuals beyond which a number is likely wrong (Leys et al. 2013)."""
NORMAL = 1.4826
"""The standard deviation of normal numbers by their median absolute deviation."""
LEAST = 1e-6
"""The lower limit of a probability in a logarithm."""
FEATURES = 1 << 18
"""Most kinds of words, and of pieces of words, that it counts."""


@dataclass(frozen=True)
class Doubt:
    """A label that is likely wrong."""

    example: int
    values: JsonObject
    """What was given and what is suggested, for a program."""
    line: str
    """The same for a person."""


@dataclass(frozen=True)
class Doubts:
    """The labels that are likely wrong, the likeliest first."""

    found: Sequence[Doubt]
    scores: np.ndarray
    """n: for each example 0 to 1; the lower, the likelier its label is wrong."""
    agreement: str
    """How far the models agree with the labels."""


def doubts(
    problem_type: ProblemType, examples: Sequence[LabelledText], names: Sequence[str], outputs: np.ndarray
) -> Doubts:
    """`outputs`: n v, the probability of each of the names for each example, or its number."""
    match problem_type:
        case "single_label_classification":
            return _of_one(examples, names, outputs)
        case "multi_label_classification":
            return _of_several(examples, names, outputs)
        case "regression":
            return _of_numbers(examples, outputs[:, 0])


def _of_one(examples: Sequence[LabelledText], names: Sequence[str], shares: np.ndarray) -> Doubts:
    """Confident learning   (Northcutt et al. 2021)"""
    from cleanlab import filter as filters
    from cleanlab import rank

    given = np.array([names.index(example.labels[0]) for example in examples])
    wrong = filters.find_label_issues(given, shares, n_jobs=1, return_indices_ranked_by="self_confidence")
    scores, best = rank.get_label_quality_scores(given, shares), shares.argmax(1)
    found: list[Doubt] = []
    for i in wrong.tolist():
        label, share = names[best[i]], float(shares[i, best[i]])
        values: JsonObject = {"given": examples[i].labels[0], "suggested": label, "probability": share}
        line = f"given {examples[i].labels[0]}  suggested {label} {share:.3f}"
        found.append(Doubt(i, values, line))
    return Doubts(found, scores, f"the models agree with {(best == given).mean():.1%} of the labels")


def _of_several(examples: Sequence[LabelledText], names: Sequence[str], shares: np.ndarray) -> Doubts:
    """Confident learning for each label on its own, scores averaged over labels   (Thyagarajan et al. 2022)"""
    from cleanlab.multilabel_classification import filter as filters
    from cleanlab.multilabel_classification import rank

    given = [[names.index(label) for label in example.labels] for example in examples]
    wrong = filters.find_label_issues(given, shares, n_jobs=1, return_indices_ranked_by="self_confidence")
    scores = rank.get_label_quality_scores(given, shares)
    has = np.array([[k in row for k in range(len(names))] for row in given])
    against = np.where(has, 1 - shares, shares)
    found: list[Doubt] = []
    for i in map(int, wrong):
        changed = against[i] > 0.5
        changed[against[i].argmax()] = True
        suggested = [name for name, there in zip(names, has[i] ^ changed, strict=True) if there]
        own, share = [*examples[i].labels], float(against[i].max())
        values: JsonObject = {"given": [*own], "suggested": [*suggested], "probability": share}
        line = f"given {'|'.join(own) or 'none'}  suggested {'|'.join(suggested) or 'none'} {share:.3f}"
        found.append(Doubt(i, values, line))
    return Doubts(
        found, scores, f"the models agree with {(has == (shares > 0.5)).all(1).mean():.1%} of the sets of labels"
    )


def _of_numbers(examples: Sequence[LabelledText], numbers: np.ndarray) -> Doubts:
    """Residuals that lie far from the others, in deviations that wrong labels do not move   (Leys et al. 2013)"""
    from cleanlab.regression import rank

    given = np.array([float(example.labels[0]) for example in examples])
    residuals = given - numbers
    middle = float(np.median(residuals))
    deviation = max(NORMAL * float(np.median(abs(residuals - middle))), np.finfo(float).tiny)
    off = (residuals - middle) / deviation
    scores = rank.get_label_quality_scores(off, np.zeros_like(off), method="residual")
    found: list[Doubt] = []
    for i in np.argsort(-abs(off), kind="stable").tolist():
        if abs(off[i]) <= FAR:
            break
        values: JsonObject = {
            "given": float(given[i]),
            "suggested": float(numbers[i]),
            "deviations": float(off[i]),
        }
        line = f"given {given[i]:g}  suggested {numbers[i]:.4g} ({off[i]:+.1f} deviations)"
        found.append(Doubt(i, values, line))
    return Doubts(
        found, scores, f"half of the models' numbers are within {np.median(abs(residuals)):.3g} of the given ones"
    )


def require_cleanlab() -> None:
    """Raises UserError if the library is not installed."""
    require("wrong-labels", "cleanlab", "eval")


def opinion(learn_from: Sequence[LabelledText], judge: Sequence[LabelledText], names: Sequence[str]) -> np.ndarray:
    """n v: how likely each of the names is a label of each text to judge, each name on its own.

    Logistic regression on TF-IDF of words, pairs of words and pieces of 2 to 5 letters.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_union

    counted = partial(TfidfVectorizer, sublinear_tf=True, max_features=FEATURES)
    words = counted(ngram_range=(1, 2), tokenizer=str.split, token_pattern=None)
    counts = make_union(words, counted(analyzer="char_wb", ngram_range=(2, 5)))
    known = counts.fit_transform([" ".join(example.texts) for example in learn_from])
    new = counts.transform([" ".join(example.texts) for example in judge])
    found = np.empty((len(judge), len(names)))
    for i, name in enumerate(names):
        has = np.array([name in example.labels for example in learn_from])
        if has.all() or not has.any():
            found[:, i] = has[0]
        else:
            found[:, i] = LogisticRegression(C=3.0, max_iter=500).fit(known, has).predict_proba(new)[:, 1]
    return found


def joined(networks: np.ndarray, linear: np.ndarray, has: np.ndarray, *, several: bool) -> np.ndarray:
    """n v: the probabilities p^a q^b, normalised, with the exponents that fit the given labels best.

    A logarithmic pool (Genest and Zidek 1986) of networks (p) and a linear model (q). `has`: n v, whether a text has a
    label. With `several`, labels do not exclude each other, and each is a choice of its own.
    """
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    shape = networks.shape
    if several:
        networks, linear, has = (np.stack([1 - x, x], -1).reshape(-1, 2) for x in (networks, linear, has.astype(float)))
    logs = np.log(np.clip([networks, linear], LEAST, 1.0))
    chosen = has.argmax(1)

    def pooled(exponents: np.ndarray) -> np.ndarray:
        return log_softmax(np.tensordot(exponents, logs, 1), axis=1)

    def loss(exponents: np.ndarray) -> float:
        return -float(pooled(exponents)[np.arange(len(chosen)), chosen].mean())

    found = np.exp(pooled(minimize(loss, [1.0, 0.1], bounds=[(0.0, None), (0.0, None)]).x))
    return found[:, 1].reshape(shape) if several else found
