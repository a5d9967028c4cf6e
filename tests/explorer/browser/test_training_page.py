"""A page in which a model learns, in a real browser, from a file; its checkpoint in Python."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import clearhead
from clearhead_lab.learning_page import TEST, html
from tests.explorer.browser.checks import fits, violations
from tests.explorer.conftest import ChromiumPage

if TYPE_CHECKING:
    from playwright.sync_api import Page

STEPS = 60


def steps(page: Page) -> int:
    return int(re.findall(r"\d+", page.locator(".headline").inner_text())[0])


def test_it_learns_and_python_goes_on_from_there(chromium_page: ChromiumPage, tmp_path: Path) -> None:
    file, page = tmp_path / "translator.html", chromium_page.page
    file.write_bytes(html())
    page.set_default_timeout(60_000)
    page.goto(file.as_uri())
    page.locator(".headline").wait_for()
    assert violations(page) == []
    fits(page)
    page.get_by_role("button", name="Play").press("Enter")
    while steps(page) < STEPS:
        page.wait_for_timeout(100)
    page.get_by_role("button", name="Pause").press("Enter")
    step = page.get_by_role("button", name="One step")
    step.press("Enter")
    losses = page.get_by_role("table", name="Loss").locator("td").all_inner_texts()
    assert float(losses[-1]) < 0.6 * float(losses[0]), losses

    before = steps(page)
    for name in ("positions are on", "cross, block 1, Head 0 is on"):
        switch = page.get_by_role("switch", name=name)
        switch.press("Enter")
        assert switch.get_attribute("aria-checked") == "false"
    step.press("Enter")
    page.wait_for_function(
        "before => Number(/\\d+/.exec(document.querySelector('.headline').innerText)[0]) > before", arg=before
    )
    page.get_by_role("button", name="Draw this head anew").press("Enter")
    step.press("Enter")
    with page.expect_download() as download:
        page.get_by_role("button", name="Checkpoint for Python").press("Enter")
    download.value.save_as(tmp_path / "translator.zip")
    zipfile.ZipFile(tmp_path / "translator.zip").extractall(tmp_path)
    model, examples = clearhead.load(tmp_path / "translator"), page.get_by_label("An unseen example")
    for i, (text, _) in enumerate(TEST[:4]):
        examples.select_option(str(i))
        expected = model.translate([text], beams=1)[0]
        # The page writes no more words than the right answer has.
        page.wait_for_function(
            "all => (w => w && `${all} `.startsWith(`${w} `))(document.querySelector('.writes').innerText.trim())",
            arg=expected,
        )
    assert not any(address.startswith("http") for address in chromium_page.requests)
