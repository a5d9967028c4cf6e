"""The whole site: every page and guide is in its list, and no link leads nowhere."""

import re
from pathlib import Path

import pytest
import yaml

from course import glossary, reference, site
from course.page import names
from course.running import Ran
from tests.conftest import ROOT

pytestmark = pytest.mark.slow  # It computes every record of the lab.
NAV = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Markdown of the site, with pages as they are written and without figures."""
    folder = tmp_path_factory.mktemp("site") / "docs"
    site.stage([Ran(name, markdown=site.source(name)) for name in names()], folder, models=folder)
    return folder


def test_the_list_of_pages_is_whole(staged: Path) -> None:
    listed = re.findall(r"[\w./-]+\.md", NAV)
    assert sorted(listed) == sorted(file.relative_to(staged).as_posix() for file in staged.rglob("*.md"))
    assert yaml.safe_load(NAV)["use_directory_urls"] is False, "a stick has no server that finds index.html"


def anchors(text: str) -> set[str]:
    """The addresses of headings and marks in a page, as Python-Markdown makes them."""
    titles = re.findall(r"^#+ (.+?)(?: \{ #[\w.]+ \})?$", text, re.MULTILINE)
    slugs = {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}
    return slugs | set(re.findall(r'<a id="([^"]+)"', text))


def test_no_dead_link(staged: Path) -> None:
    dead: list[str] = []
    for file in staged.rglob("*.md"):
        text = re.sub(r"^```.*?^```|`[^`\n]+`", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for link in re.findall(r"(?<!\\)\]\(([^)\s]+)\)", text):
            path, _, anchor = link.partition("#")
            if "://" in path:
                continue
            to = (file.parent / path).resolve() if path else file
            marked = anchor and to.suffix == ".md"  # A page of exercises names its exercises itself.
            if not to.is_file() or (marked and anchor not in anchors(to.read_text(encoding="utf-8"))):
                dead.append(f"{file.relative_to(staged)}: {link}")
    assert dead == []


def test_words_lead_to_the_glossary() -> None:
    text = glossary.SOURCE.read_text(encoding="utf-8")
    known = glossary.terms(text)
    assert {"residual stream", "self-attention", "cross-attention", "head", "address"} <= set(known)
    assert glossary.linked("a [[head]] and [[address|addresses]]", known, "g.md") == (
        "a [head](g.md#term-head) and [addresses](g.md#term-address)"
    )
    assert all(f'<a id="{anchor}"></a>' in glossary.anchored(text) for anchor in known.values())
    assert glossary.unknown("[[hed]] and [[head]]", known) == ["hed"]


def test_the_reference_has_what_a_docstring_says() -> None:
    pages = dict(reference.pages())
    assert "### trace { #clearhead.trace.trace }" in pages["trace"]
    assert "Raises UserError for an edit that no forward pass met." in pages["trace"]
    assert "#### generate { #clearhead.api.model.Model.generate }" in pages["api"]
    assert "| `n_kv_heads` |" in pages["config"]
    assert "(self" not in "".join(pages.values())


def test_the_errata_are_all_there_once(staged: Path) -> None:
    page = (staged / "course" / "errata.md").read_text(encoding="utf-8")
    ours = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (s\d-\S+) \|", ours, re.MULTILINE)
    assert re.findall(r"^\| (s\d-\S+) \|", page, re.MULTILINE) == rows
    assert len(rows) == len(set(rows)) > 0
