"""Cold starts of both sides run and say what they took; no figure is judged here."""

import pytest

from benchmarks.loading import LARGE, SIDES, checkpoints, network, opened
from clearhead.api import Model
from tests.later import later

later("transformers")


# The reference library is opened for comparison alone.
@pytest.mark.parametrize(
    "side", [pytest.param(s, marks=pytest.mark.slow if s == "transformers" else ()) for s in SIDES]
)
def test_a_cold_start(side: str, tmp_path):
    folder = Model(network(*checkpoints(quick=True)[LARGE])).save(tmp_path / "model")
    start = opened(side, folder)
    assert 0 < start["cpu"] < 300
    assert 0 < start["loaded"] <= start["said"] < 10**9
