"""Intervals and paired differences against what is known of them."""

from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest

from clearhead.tasks.scores import ScoredRows, difference, of_each, scored
from clearhead.tasks.text_scores import bleu, chrf, exact_match


def mean(values: np.ndarray) -> float:
    return float(values.mean())


def of(values: np.ndarray) -> ScoredRows:
    return ScoredRows(mean, (values,))


def test_a_clear_difference_and_none():
    random = np.random.default_rng(1)
    first = (random.random(400) < 0.7).astype(float)
    better = np.maximum(first, random.random(400) < 0.3)
    found = difference(of(first), of(better))
    assert found.value == pytest.approx(better.mean() - first.mean())
    assert found.interval[0] > 0
    assert found.p == pytest.approx(1 / 1001)
    # The standard error of the mean of 400 differences.
    spread = (better - first).std() / 20
    assert found.interval == pytest.approx((found.value - 1.96 * spread, found.value + 1.96 * spread), abs=0.01)
    back = difference(of(better), of(first))
    assert (back.value, back.p) == (-found.value, found.p)
    none = difference(of(first), of(first))
    assert (none.value, none.interval, none.p) == (0.0, (0.0, 0.0), 1.0)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_score_of_0_or_1_has_the_interval_of_wilson(value: float):
    stats = pytest.importorskip("scipy.stats")
    rows = scored("accuracy", mean, np.full(30, value)).rows
    assert rows is not None
    theirs = stats.binomtest(int(30 * value), 30).proportion_ci(method="wilson")
    assert rows.interval == pytest.approx((theirs.low, theirs.high), abs=1e-4)
    width = theirs.high - theirs.low
    assert difference(rows, rows).interval == pytest.approx((-width, width), abs=1e-4)
    assert of(np.full(30, value)).interval == (value, value), "a mean of other units has no such bounds"


def test_the_p_value_of_equal_models_is_uniform():
    """Two models that are right equally often: about a twentieth of the p-values is below 0.05."""
    random = np.random.default_rng(0)
    found = [difference(*(of((random.random(60) < 0.6).astype(float)) for _ in "ab")).p for _ in range(30)]
    assert 0 <= np.mean(np.array(found) < 0.05) < 0.2
    assert 0.3 < np.mean(found) < 0.7


def test_corpus_scores_of_the_rows_are_those_of_sacrebleu():
    """The statistics that sacreBLEU's paired test resamples; they may be sent to another process."""
    from sacrebleu.metrics import BLEU, CHRF

    outputs = ["a cat sat on the mat today", "the dogs ran away from it", "no", "one two three four five"]
    references = ["the cat sat on the mat today", "the dog ran away from him", "no", "one two three five four"]
    for score, theirs in ((bleu, BLEU(force=True)), (chrf, CHRF())):
        found = score(outputs, [[text] for text in references])
        rows = ForkingPickler.loads(ForkingPickler.dumps(found.rows))
        assert found.value == pytest.approx(theirs.corpus_score(outputs, [references]).score, rel=1e-12)
        some = [1, 3, 3]
        again = theirs.corpus_score([outputs[i] for i in some], [[references[i] for i in some]])
        assert rows.of(np.array(some)) == pytest.approx(again.score, rel=1e-12)
    found = exact_match(outputs, [[text] for text in references])
    assert of_each(found) == [0.0, 0.0, 1.0, 0.0]
