"""Exact match and F1 of answers, by SQuAD's rule (Rajpurkar et al. 2016, 6.1; 2018)."""

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np

from clearhead.tasks.label_scores import scored
from clearhead.tasks.metrics import Score

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized(text: str) -> str:
    """The text in lower case, without punctuation, articles and extra white space."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact(output: str, references: Sequence[str]) -> float:
    """Whether the output is one of the references; no answer is right where there is no reference."""
    return float(normalized(output) in {*map(normalized, references or [""])})


def f1(output: str, references: Sequence[str]) -> float:
    """The best F1 of the output's words with one of the references; no answer is right where there is no reference."""
    return max(_f1(normalized(output).split(), normalized(text).split()) for text in references or [""])


def _f1(output: Sequence[str], reference: Sequence[str]) -> float:
    if not output or not reference:
        return float(output == reference)
    n_shared = (Counter(output) & Counter(reference)).total()
    return 2 * n_shared / (len(output) + len(reference))


def answer_scores(references: Sequence[Sequence[str]], outputs: Sequence[str]) -> tuple[Score, ...]:
    """F1 and exact match, with bootstrap intervals over questions, and both for questions without an answer."""
    each = {
        name: np.array([score(a, b) for a, b in zip(outputs, references, strict=True)])
        for name, score in {"f1": f1, "exact_match": exact}.items()
    }
    found = [scored(name, _mean, values, values, "0 to 1") for name, values in each.items()]
    none = np.array([not some for some in references])
    if none.any() and not none.all():
        found += [
            scored("f1_answered", _mean, each["f1"][~none], each["f1"][~none], "0 to 1"),
            scored("no_answer", _mean, each["f1"][none], each["f1"][none], "0 to 1"),
        ]
    return tuple(found)


def _mean(values: np.ndarray, _: np.ndarray) -> float:
    return float(values.mean())
