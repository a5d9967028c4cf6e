"""Scores of written texts, by the name that a recipe gives: ROUGE for summaries, else BLEU, chrF or exact match."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from clearhead.errors import UserError
from clearhead.tasks.label_scores import scored
from clearhead.tasks.metrics import Score, bleu, chrf, exact_match

Metric = Literal["rouge", "bleu", "chrf", "exact_match"]
MAIN: dict[Metric, str] = {"rouge": "rougeL", "bleu": "bleu", "chrf": "chrf", "exact_match": "exact_match"}
"""The score of each metric that chooses the best checkpoint."""


def written_scores(metric: Metric, outputs: Sequence[str], references: Sequence[str]) -> tuple[Score, ...]:
    """The scores of a metric, the main one first."""
    several = [[text] for text in references]
    match metric:
        case "rouge":
            return rouge(outputs, references)
        case "bleu":
            return bleu(outputs, several, tokenize="13a"), chrf(outputs, several)
        case "chrf":
            return (chrf(outputs, several),)
        case "exact_match":
            return (exact_match(outputs, several),)


def rouge(outputs: Sequence[str], references: Sequence[str]) -> tuple[Score, ...]:
    """ROUGE-L, ROUGE-1 and ROUGE-2, 0..100: the mean F1 of longest common subsequences, words and pairs (Lin 2004).

    As `rouge-score` computes them, with Porter's stemmer, and with 95% bootstrap intervals. Raises UserError without
    that package, and for texts in a script of which it drops every letter.
    """
    try:
        from rouge_score import rouge_scorer
    except ImportError:
        raise UserError(
            "metric=rouge: expected the package rouge-score, got none; pip install 'clearhead[eval]'"
        ) from None
    if not any(char.isascii() and char.isalnum() for text in references for char in text):
        raise UserError('metric=rouge: expected references in Latin letters, got others; try evaluation.metric="chrf"')
    scorer = rouge_scorer.RougeScorer(["rougeL", "rouge1", "rouge2"], use_stemmer=True)
    rows = [scorer.score(reference, output) for output, reference in zip(outputs, references, strict=True)]

    def mean(_: np.ndarray, values: np.ndarray) -> float:
        return float(values.mean())

    found: list[Score] = []
    for name in ("rougeL", "rouge1", "rouge2"):
        values = np.array([100 * row[name].fmeasure for row in rows])
        found.append(scored(name, mean, values, values, "mean F1, 0 to 100"))
    return tuple(found)
