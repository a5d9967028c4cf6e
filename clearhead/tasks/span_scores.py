"""Precision, recall and F1 of spans, as nervaluate counts them, and the accuracy of tags, over sentences."""

from collections.abc import Sequence

import numpy as np

from clearhead.data.tag_schemes import Span
from clearhead.errors import UserError
from clearhead.tasks.label_scores import scored
from clearhead.tasks.metrics import Score


def check_span_scores() -> None:
    """Raises UserError unless nervaluate is installed."""
    try:
        import nervaluate  # noqa: F401
    except ImportError:
        raise UserError("span_f1: expected the package nervaluate, got none; pip install 'clearhead[eval]'") from None


def span_scores(references: Sequence[Sequence[Span]], outputs: Sequence[Sequence[Span]]) -> tuple[Score, ...]:
    """Micro-averaged F1, precision and recall of the spans of sentences: words and label must be the same.

    Each has a bootstrap interval over sentences. Raises UserError as `check_span_scores` does.
    """
    check_span_scores()
    from nervaluate.entities import Entity
    from nervaluate.strategies import StrictEvaluation

    def entities(spans: Sequence[Span]) -> list[Entity]:
        return [Entity(label=span.label, start=span.start, end=span.end - 1) for span in spans]

    strict = StrictEvaluation()
    each = [strict.evaluate(entities(a), entities(b), [])[0] for a, b in zip(references, outputs, strict=True)]
    hits = np.array([one.correct for one in each])
    there, here = (np.array([*map(len, spans)]) for spans in (references, outputs))
    return (
        scored("span_f1", share, 2 * hits, there + here, "0 to 1"),
        scored("precision", share, hits, here, "0 to 1"),
        scored("recall", share, hits, there, "0 to 1"),
    )


def share(parts: np.ndarray, wholes: np.ndarray) -> float:
    """The sum of the parts divided by the sum of the wholes; n, n. 0 if the wholes are empty."""
    return float(parts.sum() / max(wholes.sum(), 1))
