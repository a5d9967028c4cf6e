"""Every page of the course is as it is written: outputs, numbers, formulas, figures, glossary."""

from pathlib import Path

import pytest

from clearhead_lab.course import site
from clearhead_lab.course.page import names
from lab.tests.course.conftest import trained


@pytest.mark.parametrize("name", names())
def test_page(name: str, models: Path) -> None:
    assert site.problems(site.ran([name], models=trained(models, name))) == []
