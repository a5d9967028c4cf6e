"""Costs by size: what is measured is there, and the exponents and plots are those of the figures."""

import sys

import pytest

from benchmarks.cost import Cost, Sizes, cost, exponent, table

SQUARE = {n: Cost(seconds=n**2.0, spread=0.1, peak_mb=3.0 * n, attention=0.25, gflop=n**1.5) for n in (64, 256, 1024)}


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_cost_of_a_small_decoder():
    sizes = Sizes(length=64, width=64, batch=2, vocabulary=100, n_layers=1)
    found = cost(sizes)
    assert found.seconds > 0
    assert found.peak_mb > 0
    assert 0 < found.attention < 1
    linear, attention, head = 2 * 12 * 64 * 64, 4 * 64 * 64, 2 * 64 * 100
    assert found.gflop == pytest.approx(3 * 2 * 64 * (linear + attention + head) / 1e9)


def test_exponents_are_those_of_powers():
    assert exponent(SQUARE, "time") == pytest.approx((2, 2))
    assert exponent(SQUARE, "memory") == pytest.approx((1, 1))
    assert "time ~ length^2.00 (last two 2.00); memory ~ length^1.00" in table("length", SQUARE)
