"""Scores of predicted labels, each with a bootstrap interval: accuracy, F1, rank correlation."""

from collections.abc import Callable

import numpy as np

from clearhead.tasks.metrics import Score
from clearhead.tasks.resampling import ScoredRows


def accuracy(references: np.ndarray, outputs: np.ndarray) -> float:
    """Share of rows, 0..1, that are equal; n or n v."""
    return float((references == outputs).reshape(len(references), -1).all(1).mean())


def macro_f1(references: np.ndarray, outputs: np.ndarray) -> float:
    """The unweighted mean of 2 tp / (2 tp + fp + fn) over the labels that occur in either; n, n."""
    labels, which = np.unique(np.concatenate([references, outputs]), return_inverse=True)
    there, here = which[: len(references)], which[len(references) :]
    hits = np.bincount(there[there == here], minlength=len(labels))
    return float((2 * hits / np.bincount(which)).mean())


def micro_f1(references: np.ndarray, outputs: np.ndarray) -> float:
    """2 tp / (2 tp + fp + fn) over all labels of all rows; n v and n v of bool. 1 if there are none."""
    total = references.sum() + outputs.sum()
    return float(2 * (references & outputs).sum() / total) if total else 1.0


def spearman(references: np.ndarray, outputs: np.ndarray) -> float:
    """The correlation of the ranks, equal numbers with their mean rank; n, n. 0 if either is constant."""
    there, here = _ranks(references), _ranks(outputs)
    return float(np.corrcoef(there, here)[0, 1]) if there.std() > 0 and here.std() > 0 else 0.0


def _ranks(values: np.ndarray) -> np.ndarray:
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (counts.cumsum() - (counts - 1) / 2)[which]


def scored(
    name: str, score: Callable[[np.ndarray, np.ndarray], float], references: np.ndarray, outputs: np.ndarray, unit: str
) -> Score:
    """A score of these rows with its 95% bootstrap interval."""
    rows = ScoredRows(score, (references, outputs))
    return Score(name, score(references, outputs), unit=unit, is_bounded=True, rows=rows)
