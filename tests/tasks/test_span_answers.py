"""The best span of a window, from logits alone."""

import numpy as np
import pytest

from clearhead.tasks.question_answering.data import Window, Windows
from clearhead.tasks.question_answering.task import MOST_TOKENS, best_of

N, START = 40, 2


@pytest.mark.parametrize(
    ("first", "lasts", "right"),
    [
        (7, {3: 5.0, 9: 1.0}, 9),  # None ends before it begins,
        (1, {1 + MOST_TOKENS: 5.0, MOST_TOKENS: 1.0}, MOST_TOKENS),  # and none is longer than it may be.
    ],
)
def test_the_best_of_the_spans_that_can_be(first: int, lasts: dict[int, float], right: int):
    logits = np.zeros((START + N, 2))
    logits[0] = -9.0  # no answer
    logits[START + first, 0] = 5.0
    for last, value in lasts.items():
        logits[START + last, 1] = value
    places = [(10 * i, 10 * i + 9) for i in range(N)]
    [found] = best_of(Windows([Window(0, [0] * (START + N), [0] * (START + N), START, places)], 1), [logits])
    assert (found.start, found.end, found.score) == (10 * first, 10 * right + 9, 6.0)
