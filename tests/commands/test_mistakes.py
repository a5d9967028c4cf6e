"""The page of the worst mistakes: whole, in order, and harmless whatever the texts are."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import numpy as np
import pytest

from clearhead.cli.judge.page import MOST, write_page
from clearhead.errors import UserError
from clearhead.tasks.evaluation import Evaluation, Example, Finding
from clearhead.tasks.scores import Score, ScoredRows
from tests.shell import Folders, Shell
from tests.small_models import PAIRS

NASTY = "<script>alert(1)</script> \"a\" & 'b' \ud800 #?="


class Reader(HTMLParser):
    """The tags, the addresses and the rows of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.rows: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value for name, value in attrs if name in ("href", "src") and value is not None]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data.strip("\n")


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    return reader


def evaluation(*examples: Example) -> Evaluation:
    rows = ScoredRows(lambda values: float(values[0]), (np.repeat([0.4, 0.6], 50),))
    scores = (Score("accuracy", 0.5, is_bounded=True, rows=rows), Score("loss", 1.0))
    return Evaluation(scores, examples=examples, findings=(Finding("confusion", ("a < b",), {}),))


def test_mistakes_are_sorted_and_right_ones_left_out(tmp_path):
    some = [Example(f"text {i}", "x", "y", float(i), is_wrong=i != 7, place=f"a.csv:{i}") for i in range(MOST + 20)]
    write_page(tmp_path / "page.html", model="run", data="its test data", found=evaluation(*some))
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    rows = [row for row in read(html).rows if len(row) == 5][1:]
    assert len(rows) == MOST
    assert rows[0] == ["1", f"text {MOST + 19}a.csv:{MOST + 19}", "y", "x", f"{MOST + 19:.4f}"]
    assert [float(row[4]) for row in rows] == sorted((float(row[4]) for row in rows), reverse=True)
    assert f"{MOST + 19} of {MOST + 20} examples of its test data are wrong; these are the {MOST} worst" in html
    assert "0.4000 to 0.6000" in html
    assert "a &lt; b" in html


def test_texts_are_no_markup_and_links_open_them(tmp_path):
    found = evaluation(Example(NASTY, NASTY, NASTY, 1.0, is_wrong=True, place=NASTY))
    write_page(tmp_path / "page.html", model=NASTY.replace("\ud800", ""), data=NASTY, found=found)
    reader = read((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert not {"script", "img", "link", "iframe"} & reader.tags
    (link,) = reader.links
    assert urlparse(link).netloc == "127.0.0.1:8765"
    assert parse_qs(urlparse(link).fragment)["s"] == [NASTY.replace("\ud800", "?")]
    with pytest.raises(UserError, match="--page: expected a task that judges single examples"):
        write_page(tmp_path / "page.html", model="m", data="d", found=Evaluation(()))
    with pytest.raises(UserError, match="expected to write it, got File exists"):
        write_page(tmp_path / "page.html" / "x.html", model="m", data="d", found=found)


def test_evaluate_writes_the_page(shell: Shell, folders: Folders):
    Path("a").write_text("\n".join(PAIRS.source[:4]), encoding="utf-8")
    Path("b").write_text("\n".join(PAIRS.target[:4]), encoding="utf-8")
    line = ("evaluate", folders["translator"], "--source", "a", "--target", "b", "--page", "page.html")
    assert "the worst mistakes: page.html" in shell.done(*line).err
    rows = [row for row in read(Path("page.html").read_text(encoding="utf-8")).rows if len(row) == 5]
    assert {row[1] for row in rows[1:]} == set(PAIRS.source[:4])
