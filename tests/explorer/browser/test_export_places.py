"""Scores, circuits and features in an exported file, from a disk with the network off, against Python's numbers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from clearhead.analysis.circuits import patched_edges
from clearhead.analysis.features import Features, Site
from clearhead.analysis.scores import ov_attribution, qk_attribution
from clearhead.api.circuits import circuits_of
from clearhead.api.features import attach
from clearhead.explorer.answering.questions import RunRequest
from clearhead.explorer.recording.tokens import read
from clearhead.explorer.session import Session
from tests.explorer.browser.numbers import agrees, terms_agree
from tests.explorer.browser.page import eventually, fragment
from tests.explorer.browser.seeing import right
from tests.explorer.browser.test_accessibility import axe, violations
from tests.explorer.browser.test_export import SOURCE, TARGET, OpenedFile, OpenFile, open_file, translator, written
from tests.small_models import model_of

if TYPE_CHECKING:
    from playwright.sync_api import Locator

__all__ = ["axe", "open_file", "translator"]
OTHER = "seven six nine one"


def fits_a_phone(opened: OpenedFile) -> None:
    opened.page.set_viewport_size({"width": 390, "height": 844})
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_why_a_head_looks_there(open_file: OpenFile, translator: Session, tmp_path: Path, axe: str) -> None:
    """The engine in the page splits the score."""
    at = {"stack": "decoder", "part": "cross", "layer": 1, "head": 1, "query": 3, "key": 1}
    state = fragment(SOURCE, TARGET, view="attention", **at)
    opened = open_file(translator, written(translator, tmp_path / "a.html", state=state))
    opened.button("Why it looks there: terms").focus()
    opened.press("Enter")
    model, cell = translator.model, "decoder.blocks.1.cross.scores[h=1,t=3,s=1]"
    given = model.reader.inputs(SOURCE, TARGET, model.generation)

    expected = qk_attribution(model.network, given, cell)
    logit = int(model.trace(SOURCE, TARGET)[1][3].argmax())
    carried = ov_attribution(model.network, given, cell.replace("scores", "weights"), logit)

    eventually(lambda: terms_agree(opened.rows, expected, carried))
    assert violations(opened, axe) == []
    fits_a_phone(opened)


def test_the_circuit_of_two_texts(open_file: OpenFile, translator: Session, tmp_path: Path, axe: str) -> None:
    """The text against which the file holds it stands in the field; every edge opens; another text is refused."""
    state = fragment(SOURCE, TARGET, view="circuits")
    corrupt = RunRequest(text=OTHER)
    opened = open_file(translator, written(translator, tmp_path / "a.html", corrupt=corrupt, state=state))
    assert opened.page.locator("main form input").input_value() == OTHER
    opened.page.locator("main form input").press("Enter")
    opened.page.locator("main .number").wait_for()
    opened.page.locator("main form progress").wait_for(state="detached")
    model = translator.model
    clean, other = (read(model, text, TARGET).inputs for text in (SOURCE, OTHER))
    found, _ = circuits_of(model, clean, [other[0], clean[1]])
    top = found.edges().top(40)
    numbers = opened.page.locator("main .number").inner_text().split(": ")[-1].split()
    right(numbers[0], found.ends[0])
    rows = opened.page.locator("main ul[aria-label^='Edges'] button")
    right(rows.first.inner_text().rsplit(": ", 1)[1], top[0].score)
    card = opened.page.locator("section.card", has=opened.page.locator("#edge-card"))
    rows.first.focus()
    for i in (0, 1):
        opened.press("Enter")
        score = rows.nth(i).inner_text().rsplit(": ", 1)[1]
        edge = next(one for one in top if agrees(score, one.score))
        pair = edge.writer, edge.reader
        exact = patched_edges(found, [pair])[pair]
        eventually(partial(_ends_with, card, exact))
        opened.press("ArrowDown")
    assert violations(opened, axe) == []
    fits_a_phone(opened)
    opened.page.locator("main form input").fill("one two nine one")
    opened.page.locator("main form button").click()
    gap = opened.page.locator("main .gap").first
    gap.wait_for()
    assert f"holds this for “{SOURCE}” / “{OTHER}” (t = " in gap.inner_text()
    assert "clearhead explore translator" in gap.inner_text()


def _ends_with(card: Locator, number: float) -> None:
    right(card.locator("p.small").first.inner_text().rstrip(".").split()[-1], number)


def test_a_file_without_a_second_text_lists_no_circuits(
    open_file: OpenFile,
    translator: Session,
    tmp_path: Path,
) -> None:
    opened = open_file(translator, written(translator, tmp_path / "a.html"))
    assert opened.page.locator("nav.left").get_by_role("button", name="Circuits").count() == 0
    opened.go_to(fragment(SOURCE, TARGET, view="circuits"))
    assert "takes the model in Python" in opened.page.locator("main .gap").inner_text()


@pytest.mark.parametrize("large", [False, True], ids=["live", "large"])
def test_features(open_file: OpenFile, tmp_path: Path, axe: str, large: bool) -> None:
    """Those of each token of the text, without a slider."""
    model, at = model_of("nano", n_layers=2), "decoder.blocks.0.resid_post"
    torch.manual_seed(0)
    sizes = torch.randn(16, 40), torch.zeros(40), torch.randn(40, 16), torch.zeros(16)
    attach(model.network, Features(Site(at, at), *sizes, k=6))
    session = Session(model, name="nano", text="one two three")
    state = fragment("one two three", view="features", stack="decoder", query=1)
    opened = open_file(session, written(session, tmp_path / "a.html", large=large, state=state))
    row = model.trace("one two three")[0][f"{at}.features"][0, 1]

    def is_right() -> None:
        rows = opened.rows("Active at ▁two")
        order = row.topk(6).indices.tolist()
        assert [int(cells[0]) for cells in rows] == order
        assert all(agrees(cells[2].split()[0], float(row[i])) for cells, i in zip(rows, order, strict=True))

    eventually(is_right)
    assert opened.page.get_by_role("slider", name="Feature").count() == 0
    assert violations(opened, axe) == []
    fits_a_phone(opened)
