"""A page of exercises in a real browser, from a file: answered by keyboard, kept, exported, and graded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead_lab.exercises.grading import graded
from clearhead_lab.exercises.pages import html_of
from clearhead_lab.exercises.sets import SETS
from tests.explorer.browser.checks import fits, violations
from tests.explorer.conftest import ChromiumPage

if TYPE_CHECKING:
    from playwright.sync_api import Page


def told(page: Page) -> str:
    page.locator(".told").wait_for()
    return page.locator(".told").inner_text()


def test_answers_by_keyboard_are_kept_and_graded(chromium_page: ChromiumPage, tmp_path: Path) -> None:
    file, page = tmp_path / "masks.html", chromium_page.page
    file.write_bytes(html_of(SETS["masks"]()))
    page.set_default_timeout(60_000)
    page.goto(f"{file.as_uri()}#open-cells")
    number = page.get_by_label("Your number")
    number.wait_for()
    number.focus()
    page.keyboard.type("36")
    page.keyboard.press("Enter")
    assert told(page).startswith("Not yet. That is every cell.")
    number.fill("−21")
    page.keyboard.press("Enter")
    page.get_by_text("Your number has the wrong sign.").wait_for()
    number.fill("8")
    page.keyboard.press("Enter")
    page.get_by_text("This is not the number, and none of the known mistakes leads to it.").wait_for()
    number.fill("21,0")
    page.keyboard.press("Enter")
    page.get_by_text("Right.", exact=True).wait_for()
    page.get_by_role("button", name="Next exercise").press("Enter")
    page.get_by_role("heading", name="Make the model cheat").wait_for()

    def compose(at: str, value: str, **index: str) -> None:
        form = page.get_by_role("form", name="Make an edit")
        form.get_by_label("Value").select_option(at)
        for axis, place in index.items():
            row = form.locator("label").filter(has_text=re.compile(f"^{axis} "))
            row.locator("select").select_option(place)
        form.get_by_label("to", exact=True).fill(value)
        form.get_by_role("button", name="Make this edit").press("Enter")

    compose("decoder.blocks.0.attn.scores", "30", h="1", t="2", s="3")
    page.get_by_role("button", name="Check").press("Enter")
    assert told(page).startswith("Not yet. You raised the score, and the mask closed it again")
    page.get_by_role("button", name="Start again").press("Enter")
    page.locator(".edits").wait_for(state="detached")
    compose("decoder.blocks.0.attn.masked", "30", h="1", t="2", s="3")
    page.locator(".edits").wait_for()
    page.get_by_role("button", name="Check").press("Enter")
    page.get_by_text("Right.", exact=True).wait_for()
    assert violations(page) == []
    fits(page)

    page.reload()
    page.get_by_text("2 of 9 right").wait_for()
    with page.expect_download() as download:
        page.get_by_role("button", name="Export answers").press("Enter")
    download.value.save_as(tmp_path / "answers.json")
    found: dict[str, Any] = {grade.exercise: grade.judgement for grade in graded(tmp_path / "answers.json").grades}
    assert {name for name, said in found.items() if said == "right"} == {"open-cells", "cheat"}
    assert not any(address.startswith("http") for address in chromium_page.requests)
