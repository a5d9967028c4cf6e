"""The samples and intervals of the learning curve; training is left to the benchmark."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.label_curve import Point, draw, interval, recipe_of, sample, table
from clearhead.tasks.classification.data import LabelledText


def test_samples_have_each_labels_share_and_differ_by_seed():
    texts = [LabelledText((f"text {i}",), ("a" if i % 4 else "b",), f"x:{i}") for i in range(80)]
    first, second = (sample(texts, 20, seed=seed) for seed in (0, 1))
    assert [sum(e.labels == (name,) for e in first) for name in "ab"] == [15, 5]
    assert first != second
    assert sample(texts, 20, seed=0) == first


def test_the_interval_counts_seeds_and_texts():
    hits = np.random.default_rng(0).random((3, 400)) < 0.8
    mean, (low, high) = interval(hits)
    assert low < mean < high
    # Drawing both is wider than 1,200 independent texts, and narrower than 400.
    assert 4 * np.sqrt(0.16 / 1200) < high - low < 4 * np.sqrt(0.16 / 400) * 1.2
    spread = np.stack([np.ones(400), np.zeros(400)])
    assert interval(spread)[1] == (0.0, 1.0)


def test_few_labels_are_read_often_and_the_curve_is_drawn(tmp_path: Path):
    assert recipe_of("pretrained", 20, start=Path("x"), seed=1, threads=1).training.epochs == 30
    assert recipe_of("new", 2000, start=Path("x"), seed=1, threads=1).training.epochs == 6
    points = [Point(name, n, 0.7, (0.6, 0.8), 1.0) for name in ("pretrained", "new") for n in (20, 50)]
    assert table(points)[2] == "| pretrained | 20 | 70.0% (60.0% to 80.0%) | 1 |"
    pytest.importorskip("matplotlib")
    draw(points, tmp_path / "curve.svg")
    assert (tmp_path / "curve.svg").read_text(encoding="utf-8").lstrip().startswith("<?xml")
