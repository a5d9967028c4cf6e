"""The live page of a run in a real browser: it renews itself, and axe finds nothing wrong in it."""

from __future__ import annotations

from pathlib import Path

from clearhead.live.server import serving
from tests.explorer.browser.checks import fits, violations
from tests.explorer.conftest import ChromiumPage
from tests.live.runs import FINISHED, begun, events, feed


def test_a_run_that_goes_on(chromium_page: ChromiumPage, tmp_path: Path) -> None:
    folder, page = begun(tmp_path / "run"), chromium_page.page
    (folder / ".owner").write_text("process 1 on another machine", encoding="utf-8")
    with serving(folder) as server:
        page.goto(server.url)
        page.get_by_text("The curves begin with the first update.").wait_for()
        assert page.url == f"{server.origin}/"
        some = events()
        feed(folder, some[:13])
        page.get_by_role("img", name="Loss by step. training 0.").wait_for()
        assert page.locator("#status").inner_text() == "running"
        assert page.locator("#tiles").inner_text().replace("\n", " ").startswith("Step 10 of 40 Epoch 1 Training loss ")
        feed(folder, some[13:])
        page.get_by_role("cell", name="best", exact=True).wait_for()
        assert page.locator("#samples dd").all_inner_texts() == ["a <b> c", "O", "B-x"]
        page.get_by_label("Step", exact=False).first.focus()
        page.keyboard.press("Home")
        assert "0.1 at step 10" in str(page.get_by_role("img", name="span f1 by step").get_attribute("aria-label"))
        assert violations(page) == []
        fits(page)
        feed(folder, [FINISHED])
        (folder / ".owner").unlink()
        page.get_by_text("finished", exact=True).wait_for()
    page.get_by_text("after step 20; the server of this page has ended").wait_for()
    assert page.locator("#samples dd").count() == 3
    assert all(address.startswith((server.origin, "data:")) for address in chromium_page.requests)
