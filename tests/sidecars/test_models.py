"""Some changed folders; `python -m tests.sidecars --cases 300` makes more."""

import pytest

from tests.later import later
from tests.sidecars.models import run

later("transformers")

CASES = [i if i % 30 == 0 else pytest.param(i, marks=pytest.mark.slow) for i in range(0, 60, 6)]
"""Six kinds of change each."""


@pytest.mark.parametrize("first", CASES)
def test_the_same_answers_or_one_line(first: int, tmp_path):
    found = [run(seed, tmp_path) for seed in range(first, first + 6)]
    wrong = [f"{case.what}: {outcome.told}" for case, outcome in found if outcome.kind == "wrong"]
    assert not wrong
