"""No relative link of a document leads nowhere: its file is there, and its anchor is a heading or a mark in it."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.conftest import ROOT
from tests.docs.blocks import DOCUMENTS, FENCE, name

LINK = re.compile(r"(?<!\\)\]\(<?([^)>\s]+)>?(?: \"[^\"]*\")?\)|(?:href|src)=\"([^\"]+)\"")


def anchors(text: str) -> set[str]:
    """The addresses of headings, as GitHub makes them, and of marks."""
    titles = re.findall(r"^#+ +(.+?)(?: \{ #([\w.-]+) \})?\s*$", FENCE.sub("", text), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", title) for title, _ in titles]
    slugs = [re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in plain]
    return {*slugs, *(mark for _, mark in titles if mark), *re.findall(r'(?:id|name)="([^"]+)"', text)}


def dead(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    prose = re.sub(r"`[^`\n]+`", "", FENCE.sub("", text))
    for found in LINK.finditer(prose):
        link = unquote(found[1] or found[2])
        file, _, anchor = link.partition("#")
        if re.match(r"\w+:", link):
            continue
        to = path.parent / file if file else path
        if not to.exists() or (anchor and to.suffix == ".md" and anchor not in anchors(to.read_text(encoding="utf-8"))):
            yield link


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_no_dead_link(path: Path):
    assert [*dead(path)] == []


def test_a_dead_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    (tmp_path / "b.md").write_text("# One, two: `three` it\n", encoding="utf-8")
    page.write_text("[a](b.md#one-two-three-it) [b](b.md#four) [c](c.md) [d](#e) `[x](y.md)`\n", encoding="utf-8")
    assert [*dead(page)] == ["b.md#four", "c.md", "#e"]


def test_the_pages_that_answer_questions_are_there():
    questions = tomllib.loads((ROOT / "tests" / "docs" / "questions.toml").read_text(encoding="utf-8"))
    assert len(questions) == 30
    assert [
        page for pages in questions.values() for page in pages if not (ROOT / "docs" / f"{page}.md").is_file()
    ] == []
