"""Texts token by token as the reference writes them."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.later import later
from tests.parity.cases import CASES, DERIVED, marked
from tests.parity.generation import compare_texts, writes
from tests.parity.harness import Case

later("transformers")

SLOW = [pytest.param(case, marks=pytest.mark.slow) for case in DERIVED if writes(case)]


def is_relative(case: Case) -> bool | None:
    """Whether its family shares most code with another one: of these, one writes in the normal suite."""
    return None if case.slow is None else case.family != "m2m_100"


QUICK = marked([replace(case, slow=is_relative(case)) for case in CASES if writes(case)])


@pytest.mark.parametrize("case", [*QUICK, *SLOW], ids=str)
def test_writes_the_reference_s_texts(case: Case, tmp_path: Path) -> None:
    compare_texts(case, tmp_path)
