"""The samples and intervals of the learning curve; training is left to the benchmark."""

import numpy as np

from benchmarks.label_curve import interval, sample
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
