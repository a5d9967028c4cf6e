"""Scores and tables of labels, by the libraries that define them."""

import numpy as np
import pytest
import torch

from clearhead.tasks.classification.scores import (
    accuracy,
    by_label,
    calibration,
    confusion,
    label_findings,
    macro_f1,
    micro_f1,
    spearman,
)
from clearhead.tasks.scores import scored


def test_what_is_empty_or_constant_has_a_score():
    nothing = np.zeros((2, 3), dtype=bool)
    assert micro_f1(nothing, nothing) == 1.0
    assert spearman(np.ones(4), np.arange(4.0)) == 0.0


def test_the_interval_is_that_of_the_binomial():
    """Accuracy 0.8 of 400: the standard error is 0.02."""
    there, here = np.zeros(400, dtype=int), np.array([0] * 320 + [1] * 80)
    score = scored("accuracy", accuracy, there, here)
    assert score.interval == pytest.approx((0.8 - 1.96 * 0.02, 0.8 + 1.96 * 0.02), abs=0.006)
    assert scored("accuracy", accuracy, there, here) == score


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


NAMES = ("a", "b", "c")


def test_confusion_and_shares_are_those_of_the_other_library():
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    given, said = random.integers(0, 3, 200), random.integers(0, 3, 200)
    found = confusion(NAMES, given, said)
    assert found.values == {"labels": [*NAMES], "counts": metrics.confusion_matrix(given, said).tolist()}
    assert len({len(line) for line in found.lines[1:]}) == 1
    here = np.eye(3, dtype=bool)
    table = by_label(NAMES, here[given], here[said]).values
    theirs = metrics.classification_report(given, said, target_names=NAMES, output_dict=True)
    assert isinstance(table, dict)
    for name in NAMES:
        row = table[name]
        assert isinstance(row, dict)
        expected = {**theirs[name], "f1": theirs[name]["f1-score"], "examples": theirs[name]["support"]}
        assert row == pytest.approx({field: expected[field] for field in row})


def test_many_labels_are_shown_by_their_confusions():
    names = [f"label {i:02}" for i in range(12)]
    found = confusion(names, np.array([0, 0, 0, 5, 7]), np.array([1, 1, 2, 5, 8]))
    assert found.lines[1].split() == "2 label 00 taken for label 01".split()
    assert len(found.lines) == 4
    here = np.eye(12, dtype=bool)
    table = by_label(names, here[[0, 1, 1]], here[[1, 1, 1]])
    assert table.lines[-1] == "    and 2 more, in --json"
    assert table.lines[1].split()[:2] == ["label", "01"]


def test_a_label_without_examples_has_no_share():
    here = np.eye(3, dtype=bool)
    table = by_label(NAMES, here[[0, 0]], here[[0, 1]]).values
    assert isinstance(table, dict)
    assert table["c"] == {"precision": None, "recall": None, "f1": None, "examples": 0}
    assert table["b"] == {"precision": 0.0, "recall": None, "f1": 0.0, "examples": 0}


def test_calibration_counted_by_hand():
    """Three are said with 0.8 and two of them are right; one with 1.0 is right."""
    found = calibration(np.array([0.8, 0.8, 0.8, 1.0]), np.array([True, True, False, True])).values
    assert isinstance(found, dict)
    assert found["expected_calibration_error"] == pytest.approx(0.75 * abs(0.8 - 2 / 3))
    assert [row["examples"] for row in found["bins"]] == [3, 1]  # pyrefly: ignore


def test_each_problem_has_its_tables():
    logits = torch.tensor([[2.0, -1.0], [0.5, 1.0]])
    single = label_findings(NAMES[:2], logits, torch.tensor([0, 0]), "single_label_classification")
    assert [one.name for one in single] == ["confusion", "by_label", "calibration"]
    several = label_findings(NAMES[:2], logits, torch.tensor([[1.0, 0.0], [1.0, 0.0]]), "multi_label_classification")
    assert [one.name for one in several] == ["by_label", "calibration"]
    assert label_findings(("x",), logits[:, :1], torch.ones(2, 1), "regression") == ()
