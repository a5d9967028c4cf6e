"""Every page of the course is as it is written: outputs, numbers, formulas, figures, drawings, glossary."""

import contextlib
import importlib.util
import io
import json
import re
from pathlib import Path

import pytest

from clearhead_lab.course import site
from clearhead_lab.course.around import CHAPTERS
from clearhead_lab.course.notebook import notebook
from clearhead_lab.course.page import HERE, names
from lab.tests.course.conftest import trained
from lab.tests.course.test_drawings import clashes
from tests.examples.packages import ROOT, install_from, run
from tests.explorer.conftest import _missing


@pytest.mark.parametrize("name", CHAPTERS)
def test_the_code_of_a_notebook_prints_what_it_holds(name: str, models: Path, tmp_path, monkeypatch):
    (tmp_path / "course-models").symlink_to(trained(models, name))
    monkeypatch.chdir(tmp_path)
    space = {"__name__": "__main__"}
    for cell in json.loads(notebook(name, site.source(name)))["cells"]:
        if cell["cell_type"] == "code":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec("".join(cell["source"]), space)
            assert out.getvalue() == "".join(line for one in cell["outputs"] for line in one["text"])


def test_an_installed_lab_builds_the_site(models: Path, tmp_path):
    """Every page is as it is written, or the site is not built, and no label of a drawing touches another.

    The wheel carries the chapters, the guides and the theme; a folder without a checkout gets the whole site.
    """
    if importlib.util.find_spec("zensical") is None:
        _missing("zensical (pip install './lab[site]')")
    folder = install_from(ROOT / "lab", tmp_path / "packages")
    (tmp_path / "build" / "course").mkdir(parents=True)
    for name in names():
        trained(models, name)
    (tmp_path / "build" / "course" / "models").symlink_to(models)
    code, said = run("-m", "clearhead_lab.course", "build", path=folder, cwd=tmp_path)
    site_at = tmp_path / "build" / "course" / "site"
    assert code == 0, said
    assert str(site_at / "index.html") in said
    docs = tmp_path / "build" / "course" / "docs"
    assert [clash for page in docs.rglob("*.md") for clash in clashes(page.read_text(encoding="utf-8"))] == []
    links = re.compile(r'<(?:a|link|script|iframe)\b[^>]*? (?:data-)?(?:href|src)="([^"#?:]+)[^":]*"')
    pages = [page for page in site_at.rglob("*.html") if page.name != "404.html"]
    dead = {
        (page.name, to) for page in pages for to in links.findall(page.read_text()) if not (page.parent / to).exists()
    }
    assert dead == set()
    listed = re.findall(r"([\w./-]+)\.md", (HERE / "mkdocs.yml").read_text())
    assert {page.relative_to(site_at).with_suffix("").as_posix() for page in pages} >= set(listed)
