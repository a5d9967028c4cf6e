"""Every page of the course is as it is written: outputs, numbers, formulas, figures, drawings, glossary."""

from pathlib import Path

import pytest

from clearhead_lab.course import site
from clearhead_lab.course.page import names
from lab.tests.course.conftest import trained
from lab.tests.course.test_drawings import clashes
from tests.examples.packages import install, run


@pytest.mark.parametrize("name", names())
def test_page(name: str, models: Path):
    pages = site.ran([name], models=trained(models, name))
    assert site.problems(pages) == []
    assert clashes(pages[0].markdown) == []


def test_page_of_an_installed_lab(models: Path, tmp_path):
    """Chapters are in the wheel, and run where there is no checkout."""
    folder = install("../lab", tmp_path / "site")
    code = "import sys, pathlib; from clearhead_lab.course import site;"
    code += "print(site.__file__, site.problems(site.ran(['tokens'], models=pathlib.Path(sys.argv[1]))))"
    said = run("-c", code, str(trained(models, "tokens")), path=folder, cwd=tmp_path)
    assert said == (0, f"{folder / 'clearhead_lab' / 'course' / 'site.py'} []\n")
