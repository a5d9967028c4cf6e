"""Some changed folders; `python -m tests.sidecars --cases 300` makes more."""

from pathlib import Path

import pytest

pytest.importorskip("transformers")

from tests.sidecars.models import run

CASES = 60


@pytest.mark.parametrize("first", range(0, CASES, 6))
def test_the_same_answers_or_one_line(first: int, tmp_path: Path) -> None:
    found = [run(seed, tmp_path) for seed in range(first, first + 6)]
    wrong = [f"{case.what}: {outcome.told}" for case, outcome in found if outcome.kind == "wrong"]
    assert not wrong
