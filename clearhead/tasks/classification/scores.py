"""Scores and tables of predicted labels: accuracy, F1, rank correlation, confusions, calibration."""

from collections.abc import Sequence

import numpy as np
from pydantic import JsonValue
from torch import Tensor

from clearhead.config.heads import ProblemType
from clearhead.json_text import JsonObject
from clearhead.tasks.evaluation import Finding


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


MOST_LABELS = 10
"""A confusion table of more labels is shown as its largest confusions."""
MOST_PAIRS = 10
BINS = 10
WIDTH = 16
"""Characters of a label in a table."""


def label_findings(
    names: Sequence[str], logits: Tensor, targets: Tensor, problem_type: ProblemType
) -> tuple[Finding, ...]:
    """The tables of these answers; n v, and the classes of each row or n v. Numbers have none."""
    match problem_type:
        case "single_label_classification":
            shares, said, given = logits.softmax(-1).max(-1).values, logits.argmax(-1).numpy(), targets.numpy()
            here = np.eye(len(names), dtype=bool)
            tables = confusion(names, given, said), by_label(names, here[given], here[said])
            return *tables, calibration(shares.numpy(), given == said)
        case "multi_label_classification":
            found, there = (logits > 0).numpy(), targets.bool().numpy()
            shares = logits.abs().sigmoid().numpy()
            return by_label(names, there, found), calibration(shares.ravel(), (there == found).ravel())
        case "regression":
            return ()


def confusion(names: Sequence[str], given: np.ndarray, said: np.ndarray) -> Finding:
    """The confusion matrix, counts[given][said], from the given and the predicted classes, n and n."""
    counts = np.zeros((len(names), len(names)), dtype=int)
    np.add.at(counts, (given, said), 1)
    if len(names) <= MOST_LABELS:
        short = [_short(name) for name in names]
        width = max(8, *map(len, short))
        rows = [(name, row) for name, row in zip(short, counts.tolist(), strict=True)]
        head = " " * (width + 4) + "  ".join(f"{name:>{width}}" for name in short)
        body = [f"    {name:<{width}}" + "  ".join(f"{count:>{width},}" for count in row) for name, row in rows]
        lines = ["confusion: a row for each given label, a column for each that the model says", head, *body]
    else:
        wrong = counts - np.diag(np.diag(counts))
        order = wrong.ravel().argsort(kind="stable")[::-1][:MOST_PAIRS]
        pairs = [(names[i // len(names)], names[i % len(names)], wrong.ravel()[i]) for i in order.tolist()]
        body = [f"    {count:>7,}  {_short(a)} taken for {_short(b)}" for a, b, count in pairs if count]
        lines = ["confusion: the most frequent", *body] if body else []
    table: list[JsonValue] = [[*row] for row in counts.tolist()]
    return Finding("confusion", tuple(lines), {"labels": [*names], "counts": table})


def by_label(names: Sequence[str], given: np.ndarray, said: np.ndarray) -> Finding:
    """Precision, recall and F1 of each label; n v and n v of bool. NaN, shown as a dash, where a count is 0."""
    hits, n_said, n_given = (given & said).sum(0), said.sum(0), given.sum(0)
    lines = [f"    {'label':<{WIDTH}}  precision     recall         F1  examples"]
    values: JsonObject = {}
    for i in range(len(names)) if len(names) <= MOST_LABELS else n_given.argsort(kind="stable")[::-1].tolist():
        precision, recall = _ratio(hits[i], n_said[i]), _ratio(hits[i], n_given[i])
        f1 = _ratio(2 * hits[i], n_said[i] + n_given[i])
        shown = (f"{'-' if share is None else f'{share:.4f}':>9}" for share in (precision, recall, f1))
        lines.append(f"    {_short(names[i]):<{WIDTH}}  {'  '.join(shown)}  {n_given[i]:>8,}")
        values[names[i]] = {"precision": precision, "recall": recall, "f1": f1, "examples": int(n_given[i])}
    more = [f"    and {len(names) - MOST_PAIRS} more, in --json"] if len(names) > MOST_LABELS else []
    return Finding("by_label", (*lines[: MOST_PAIRS + 1], *more), values)


def calibration(shares: np.ndarray, is_right: np.ndarray) -> Finding:
    """The expected calibration error: how far probabilities are from the share that is right, over equal bins.

    n: the probability of what is said, 0 to 1; n of bool. The error is the mean of |share that is right - mean
    probability| over the bins, weighted by their examples (Guo et al. 2017, 3).
    """
    which = np.minimum((shares * BINS).astype(int), BINS - 1)
    lines: list[str] = []
    rows: list[JsonValue] = []
    error = 0.0
    for k in np.unique(which).tolist():
        here = which == k
        n, mean, right = int(here.sum()), float(shares[here].mean()), float(is_right[here].mean())
        error += abs(right - mean) * n / len(shares)
        rows.append({"from": k / BINS, "to": (k + 1) / BINS, "examples": n, "probability": mean, "right": right})
        lines.append(f"    {k / BINS:.1f} to {(k + 1) / BINS:.1f}  {n:>8,}  {mean:11.4f}  {right:.4f}")
    title = f"calibration: expected calibration error {error:.4f}"
    head = "    probability  examples         mean   right"
    return Finding("calibration", (title, head, *lines), {"expected_calibration_error": error, "bins": rows})


def _short(name: str) -> str:
    return name if len(name) <= WIDTH else name[: WIDTH - 1] + "…"


def _ratio(part: int, whole: int) -> float | None:
    return float(part / whole) if whole else None
