import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.recipe.training import Constant, Cosine, InverseSqrt, WarmupStableDecay
from clearhead.training.progress import factor

ALL = [InverseSqrt(warmup=10), Cosine(warmup=10), WarmupStableDecay(warmup=10), Constant(warmup=10)]


@pytest.mark.parametrize(("d_model", "warmup"), [(512, 4000), (128, 37)])
def test_inverse_sqrt_times_its_peak_is_equation_3_of_the_paper(d_model, warmup):
    for step in (1, 2, warmup - 1, warmup, warmup + 1, 10 * warmup):
        paper = d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
        ours = (d_model * warmup) ** -0.5 * factor(InverseSqrt(warmup=warmup), step, 0.0)
        assert ours == pytest.approx(paper, rel=1e-12)
    assert factor(InverseSqrt(warmup=warmup), warmup, 0.0) == 1.0


@pytest.mark.parametrize("schedule", ALL, ids=lambda s: s.kind)
@given(step=st.integers(1, 10**9), progress=st.floats(0, 1))
def test_a_factor_is_a_share_and_warmup_rises_in_a_line(schedule, step, progress):
    assert 0.0 <= factor(schedule, step, progress) <= 1.0
    for early in (1, 5, 9):
        assert factor(schedule, early, 0.0) == pytest.approx(early / 10)


@pytest.mark.parametrize("schedule", ALL, ids=lambda s: s.kind)
def test_after_warmup_it_never_rises(schedule):
    curve = [factor(schedule, step, (step - 1) / 100) for step in range(10, 101)]
    assert all(a >= b for a, b in pairwise(curve))


def test_known_points():
    cosine = Cosine(warmup=0, min_ratio=0.2)
    assert factor(cosine, 1, 0.0) == 1.0
    assert factor(cosine, 7, 0.5) == pytest.approx(0.6)
    assert factor(cosine, 7, 0.25) == pytest.approx(0.2 + 0.8 * (1 + math.sqrt(0.5)) / 2)
    assert factor(cosine, 7, 1.0) == pytest.approx(0.2)
    wsd = WarmupStableDecay(warmup=0, decay_fraction=0.4, min_ratio=0.1)
    assert [factor(wsd, 9, p) for p in (0.0, 0.6, 0.8, 1.0)] == pytest.approx([1.0, 1.0, 0.55, 0.1])
    assert factor(Constant(warmup=0), 1, 1.0) == 1.0
