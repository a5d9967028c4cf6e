"""Which labels are likely wrong, from what models say that did not learn from them, by cleanlab."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clearhead.config.heads import ProblemType
from clearhead.data.labelled import LabelledText
from clearhead.errors import UserError
from clearhead.json_text import JsonObject

FAR = 3.0
"""Deviations from the other residuals beyond which a number is likely wrong (Leys et al. 2013)."""
NORMAL = 1.4826
"""The standard deviation of normal numbers by their median absolute deviation."""


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
    try:
        import cleanlab as _  # noqa: F401
    except ImportError:
        raise UserError(
            "wrong-labels: expected the package cleanlab, got none; try pip install 'clearhead[eval]'"
        ) from None
