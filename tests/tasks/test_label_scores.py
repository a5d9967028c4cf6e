"""Scores of labels against counts by hand and against scikit-learn's and SciPy's."""

import numpy as np
import pytest

from clearhead.tasks.classification.scores import accuracy, macro_f1, micro_f1, spearman
from clearhead.tasks.scores import scored

THERE = np.array([0, 0, 0, 1, 1, 2])
HERE = np.array([0, 0, 1, 1, 2, 3])


def test_scores_are_those_of_their_definitions():
    """Counted by hand: label 0 has 2 hits, 0 false, 1 missed; label 1 has 1, 1, 1; labels 2 and 3 have none."""
    assert accuracy(THERE, HERE) == pytest.approx(3 / 6)
    assert macro_f1(THERE, HERE) == pytest.approx((4 / 5 + 2 / 4 + 0 + 0) / 4)
    several = np.array([[1, 0, 1], [0, 1, 0], [0, 0, 0]], dtype=bool)
    found = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 0]], dtype=bool)
    assert micro_f1(several, found) == pytest.approx(2 * 2 / (3 + 3))
    assert accuracy(several, found) == pytest.approx(2 / 3)
    assert micro_f1(several[2:], found[2:]) == 1.0


def test_spearman_compares_ranks():
    x = np.array([1.0, 2.0, 3.0, 10.0])
    assert spearman(x, x**3) == pytest.approx(1.0)
    assert spearman(x, -x) == pytest.approx(-1.0)
    # Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4.
    assert spearman(np.array([1.0, 5.0, 5.0, 7.0]), x) == pytest.approx(4.5 / np.sqrt(4.5 * 5))
    assert spearman(np.ones(4), x) == 0.0


def test_the_interval_is_that_of_the_binomial():
    """Accuracy 0.8 of 400: the standard error is 0.02."""
    there, here = np.zeros(400, dtype=int), np.array([0] * 320 + [1] * 80)
    score = scored("accuracy", accuracy, there, here, "0 to 1")
    assert score.interval == pytest.approx((0.8 - 1.96 * 0.02, 0.8 + 1.96 * 0.02), abs=0.006)
    assert scored("accuracy", accuracy, there, here, "0 to 1") == score


def test_scores_are_those_of_the_other_libraries():
    """With labels that one side never has, and with equal numbers."""
    metrics, stats = pytest.importorskip("sklearn.metrics"), pytest.importorskip("scipy.stats")
    random = np.random.default_rng(0)
    there, here = random.integers(0, 5, 300), random.integers(1, 7, 300)
    assert accuracy(there, here) == pytest.approx(metrics.accuracy_score(there, here), rel=1e-12)
    assert macro_f1(there, here) == pytest.approx(metrics.f1_score(there, here, average="macro"), rel=1e-12)
    several, found = random.random((2, 100, 4)) < 0.3
    assert micro_f1(several, found) == pytest.approx(metrics.f1_score(several, found, average="micro"), rel=1e-12)
    assert accuracy(several, found) == pytest.approx(metrics.accuracy_score(several, found), rel=1e-12)
    assert spearman(there, here) == pytest.approx(stats.spearmanr(there, here).statistic, rel=1e-12)
