"""Texts token by token as the reference writes them."""

import pytest

from tests.later import later
from tests.parity.cases import CASES, DERIVED
from tests.parity.generation import compare_texts, writes
from tests.parity.harness import Case

later("transformers")

QUICK = ("gpt2-base", "llama-base", "marian-base", "bart-base", "t5-base")
"""What every run of the suite compares: learned, rotary, sinusoidal and relative positions, one stack and two."""
WRITTEN = [
    case if str(case).startswith(QUICK) else pytest.param(case, marks=pytest.mark.slow)
    for case in [*CASES, *DERIVED]
    if writes(case)
]


@pytest.mark.parametrize("case", WRITTEN, ids=str)
def test_writes_the_reference_s_texts(case: Case, tmp_path):
    compare_texts(case, tmp_path)
