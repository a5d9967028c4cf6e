"""Every page of the course is as it is written: outputs, numbers, formulas, figures, glossary."""

from pathlib import Path

import pytest

from course import site
from course.page import names
from course.running import run

pytestmark = pytest.mark.slow  # The models train for half a minute.


@pytest.mark.parametrize("name", names())
def test_page(name: str, models: Path) -> None:
    assert site.problems([run(name, site.source(name), models)]) == []
