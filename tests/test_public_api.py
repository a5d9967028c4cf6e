"""The stable names are those that docs/public-api.md states."""

import re
from importlib import import_module

import pytest

from clearhead.version import __version__
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "public-api.md").read_text(encoding="utf-8")
STATED = dict(re.findall(r"^\| `(clearhead[\w.]*)` \| (`[^|]+`) \|$", PAGE.partition("entry point")[0], re.MULTILINE))
EXPERIMENTAL = re.findall(r"`(clearhead[\w.]+)`", PAGE.partition("\nAll of ")[2])


@pytest.mark.parametrize("module", STATED)
def test_stable_names(module: str):
    names = re.findall(r"`(\w+)`", STATED[module])
    assert names == import_module(module).__all__
    assert all(getattr(import_module(module), name) is not None for name in names)


@pytest.mark.parametrize("module", EXPERIMENTAL)
def test_experimental_modules_are_there(module: str):
    assert import_module(module) is not None


def test_the_page_states_both():
    assert len(STATED) > 5
    assert len(EXPERIMENTAL) > 5


def test_every_file_of_a_release_has_its_version():
    form = re.compile(r"^(?:version(?: = |: )|## \[|copyright: clearhead )\W?([\d.]+)", re.MULTILINE)
    projects = ("pyproject.toml", "lab/pyproject.toml", "lab/clearhead_lab/course/mkdocs.yml")
    for name in (*projects, "CITATION.cff", "CHANGELOG.md"):
        found = form.search((ROOT / name).read_text(encoding="utf-8"))
        assert (name, found and found[1]) == (name, __version__)
