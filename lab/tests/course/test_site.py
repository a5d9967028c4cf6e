"""The whole site: every page and guide is in its list, and no link leads nowhere."""

import importlib
import inspect
import pkgutil
import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from clearhead.version import __version__
from clearhead_lab.course import glossary, reference, site
from clearhead_lab.course.page import HERE, names
from clearhead_lab.course.running import Ran
from tests.conftest import ROOT

NAV = (HERE / "mkdocs.yml").read_text(encoding="utf-8")


@cache
def reference_pages() -> dict[str, str]:
    return dict(reference.pages())


def stage(folder: Path) -> Path:
    """The Markdown of the site, with pages as they are written and without figures."""
    site.stage([Ran(name, markdown=site.source(name)) for name in names()], folder, models=folder)
    return folder


@pytest.fixture(scope="module")
def staged(tmp_path_factory) -> Path:
    """The site without the tables of wrong records, whose computation takes long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site, "_errata", lambda: "")
        return stage(tmp_path_factory.mktemp("site") / "docs")


def test_the_list_of_pages_is_whole(staged: Path):
    listed = re.findall(r"[\w./-]+\.md", NAV)
    assert sorted(listed) == sorted(file.relative_to(staged).as_posix() for file in staged.rglob("*.md"))
    configured = yaml.safe_load(NAV)
    assert configured["use_directory_urls"] is False, "a stick has no server that finds index.html"
    assert configured["copyright"].startswith(f"clearhead {__version__},"), "each page says its version"


def anchors(text: str) -> set[str]:
    """The addresses of headings and marks in a page, as Python-Markdown makes them."""
    titles = re.findall(r"^#+ (.+?)(?: \{ #[\w.]+ \})?$", text, re.MULTILINE)
    slugs = {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}
    given = re.findall(r'<a id="([^"]+)"', text) + re.findall(r"^#+ .+ \{ #([\w.]+) \}$", text, re.MULTILINE)
    return slugs | {*given}


def test_no_dead_link(staged: Path):
    dead: list[str] = []
    known = cache(lambda file: anchors(file.read_text(encoding="utf-8")))
    for file in staged.rglob("*.md"):
        text = re.sub(r"^```.*?^```|`[^`\n]+`", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for link in re.findall(r"(?<!\\)\]\(([^)\s]+)\)", text):
            path, _, anchor = link.partition("#")
            if "://" in path or path.startswith("../figures/"):  # Figures are not staged: test_in_browser opens them.
                continue
            to = (file.parent / path).resolve() if path else file
            marked = anchor and to.suffix == ".md"  # A page of exercises names its exercises itself.
            if not to.is_file() or (marked and anchor not in known(to)):
                dead.append(f"{file.relative_to(staged)}: {link}")
    assert dead == []


def test_words_lead_to_the_glossary():
    text = glossary.SOURCE.read_text(encoding="utf-8")
    known = glossary.terms(text)
    assert {"residual stream", "self-attention", "cross-attention", "head", "address"} <= set(known)
    assert glossary.linked("a [[head]] and [[address|addresses]]", known, "g.md") == (
        "a [head](g.md#term-head) and [addresses](g.md#term-address)"
    )
    assert all(f'<a id="{anchor}"></a>' in glossary.anchored(text) for anchor in known.values())
    assert glossary.unknown("[[hed]] and [[head]]", known) == ["hed"]


def test_the_reference_has_what_a_docstring_says():
    pages = reference_pages()
    assert "### trace { #clearhead.trace.trace }" in pages["trace"]
    assert "Raises UserError for an edit that no forward pass met." in pages["trace"]
    assert "#### generate { #clearhead.api.model.Model.generate }" in pages["api"]
    assert "| `n_kv_heads` |" in pages["config"]
    assert "(self" not in "".join(pages.values())


@pytest.mark.parametrize("part", reference.PARTS)
def test_the_reference_has_every_public_name(part: str):
    """What Python finds in the modules, asked in another way than the pages are made."""
    page = reference_pages()[part]
    package = importlib.import_module(reference.package(part))
    names = [one.name for one in pkgutil.walk_packages(getattr(package, "__path__", ()), f"{package.__name__}.")]
    found = [package.__name__, *(name for name in names if not name.startswith("clearhead_lab.course"))]
    missing = [
        f"{module}.{name}"
        for module in found
        if not any(piece.startswith("_") for piece in module.split("."))
        for name, value in vars(importlib.import_module(module)).items()
        if inspect.isclass(value) or inspect.isfunction(value)
        if value.__module__ == module and value.__qualname__ == name and not name.startswith("_")
        if re.search(
            rf"^(class|(async )?def) {name}\b", inspect.getsource(importlib.import_module(module)), re.MULTILINE
        )
        if f"{{ #{module}.{name} }}" not in page
    ]
    assert missing == []


def test_every_module_that_the_guides_import_is_in_the_reference():
    texts = [
        file.read_text(encoding="utf-8")
        for folder in ("docs", "lab/clearhead_lab/course/pages")
        for file in (ROOT / folder).glob("*.md")
    ]
    imported = {part for text in texts for part in re.findall(r"(?:from|import) clearhead\.([a-z_]+)", text)}
    assert imported <= reference.PARTS.keys()


def test_names_in_docstrings_lead_to_what_they_name():
    pages = reference_pages()
    links = {(page, link) for page, text in pages.items() for link in re.findall(r"\]\((\w+\.md#[\w.]+)\)", text)}
    assert len(links) > 100
    dead = [
        (page, link)
        for page, link in links
        if f"{{ #{link.partition('#')[2]} }}" not in pages[link.partition(".md")[0]]
    ]
    assert dead == []


@pytest.mark.slow
def test_the_errata_are_all_there_once(tmp_path):
    page = (stage(tmp_path / "docs") / "course" / "errata.md").read_text(encoding="utf-8")
    ours = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (s\d-\S+) \|", ours, re.MULTILINE)
    assert re.findall(r"^\| (s\d-\S+) \|", page, re.MULTILINE) == rows
    assert len(rows) == len(set(rows)) > 0
