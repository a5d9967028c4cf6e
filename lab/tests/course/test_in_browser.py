"""The built site in a browser, from its folder without a server: figures, axe, a phone, and what it asks for."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import pytest

from benchmarks.course_pages import opened as read
from benchmarks.course_pages import served
from clearhead_lab.course import site
from clearhead_lab.course.page import names
from tests.conftest import ROOT
from tests.explorer.conftest import ChromiumPage, _missing, chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow
AXE = ROOT / "ui" / "node_modules" / "axe-core" / "axe.min.js"
HEAVIEST = 1_500_000
__all__ = ["chromium"]


@pytest.fixture(scope="module")
def built() -> Path:
    """The site as `python -m clearhead_lab.course build` makes it. Run `npm ci` in ui/ and the extra site before."""
    pytest.importorskip("zensical")
    return site.build()


@pytest.fixture
def opened(chromium: Browser, request) -> Iterator[ChromiumPage]:
    """A page without a network; `param` is its width and whether it is dark."""
    asked: Any = getattr(request, "param", (1440, "light"))
    width, scheme = asked
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
    context.set_default_timeout(30_000)
    yield ChromiumPage(context.new_page())
    context.close()


def at(built: Path, name: str) -> Path:
    return built / "index.html" if name == "index" else built / "course" / f"{name}.html"


@pytest.mark.parametrize("name", names())
def test_a_page_asks_for_nothing_outside_its_folder(built: Path, opened: ChromiumPage, name: str):
    page = opened.open(at(built, name))
    for frame in page.locator("iframe").all():
        frame.scroll_into_view_if_needed()
        frame.content_frame.locator(".clearhead main[aria-busy=false]").wait_for()
        assert frame.content_frame.locator(".clearhead [role=alert]").count() == 0
    own = (built.as_uri(), "about:", "data:", "blob:")
    assert [url for url in opened.requests if not url.startswith(own)] == []
    assert [one for one in opened.complaints if "search.json" not in one and "file://" not in one] == []
    files = {url.partition("#")[0] for url in opened.requests if url.startswith(built.as_uri())}
    assert sum(Path(url.removeprefix("file://")).stat().st_size for url in files) <= HEAVIEST, files


@pytest.mark.parametrize("name", names())
def test_what_a_page_loads_over_http(built: Path, chromium: Browser, name: str):
    with served(built) as server:
        one = read(chromium, server, name)
    assert one.outside == 0
    assert one.bytes <= HEAVIEST, server.sent


@pytest.mark.parametrize("opened", [(1440, "light"), (1440, "dark")], indirect=True, ids=str)
@pytest.mark.parametrize("name", names())
def test_axe_finds_nothing(built: Path, opened: ChromiumPage, name: str):
    if not AXE.is_file():
        _missing("ui/node_modules/axe-core (npm ci --ignore-scripts, in ui/)")
    page = opened.open(at(built, name))
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found: Any = page.evaluate("axe.run({exclude: ['iframe']}, {resultTypes: ['violations'], iframes: false})")
    assert [
        f"{rule['id']}: {node['target']} {node['html'][:120]}" for rule in found["violations"] for node in rule["nodes"]
    ] == []


@pytest.mark.parametrize("opened", [(390, "light")], indirect=True, ids=str)
@pytest.mark.parametrize("name", names())
def test_a_phone_does_not_scroll_sideways(built: Path, opened: ChromiumPage, name: str):
    page = opened.open(at(built, name))
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for frame in page.locator("iframe").all():
        frame.scroll_into_view_if_needed()
        frame.content_frame.locator(".clearhead main[aria-busy=false]").wait_for()
        assert frame.content_frame.locator("html").evaluate("one => one.scrollWidth <= one.clientWidth")


def test_the_reader_changes_the_number_of_the_sentence(built: Path, opened: ChromiumPage):
    """The first figure of the chapter on attention: the head off, and another answer stands beside the first."""
    page = opened.open(at(built, "attention"))
    began = time.monotonic()
    figure = page.locator("iframe").first.content_frame
    figure.locator(".clearhead main[aria-busy=false]").wait_for()
    print(f"the first figure is there after {time.monotonic() - began:.1f} s")
    figure.locator(".change").get_by_role("button", name="off", exact=True).click()
    figure.locator(".answer td.b").first.wait_for()


def test_a_link_of_the_short_lesson_opens_the_head_that_its_page_tells_of(built: Path, opened: ChromiumPage):
    page = opened.open(at(built, "teacher"))
    said = r"block (\d), head (\d): bank gives money (\d+)% \(fish \d+%\); el without it ([\d.]+)%"
    rows = re.findall(said, page.locator("article").inner_text())
    assert len(rows) == 4
    for block, head, look, left in rows:
        link = page.get_by_role("link", name=f"block {block}, head {head}").get_attribute("href")
        figure = page.context.new_page()
        figure.goto(urljoin(page.url, link))
        figure.get_by_text(f"bank spends {look} % of its attention on money").wait_for()
        figure.locator(".change").get_by_role("button", name="off", exact=True).click()
        (shown,) = re.findall(r"[\d.]+", figure.locator(".answer td.b").first.inner_text())
        assert abs(float(shown) - float(left)) <= 0.5
        figure.get_by_role("button", name="reset", exact=True).click()
        figure.locator(".answer td.b").first.wait_for(state="detached")


def test_a_drawing_steps_by_arrow_keys_and_clicks(built: Path, opened: ChromiumPage):
    page = opened.open(at(built, "attention"))
    figure = page.locator(".drawing").first
    steps = figure.locator("button")
    seen = figure.locator("svg > g:not(.off, .ahead)")
    assert (seen.count(), steps.nth(0).get_attribute("aria-current")) == (1, "step")
    figure.locator("svg").scroll_into_view_if_needed()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert (seen.count(), steps.nth(2).get_attribute("aria-current")) == (3, "step")
    page.keyboard.press("ArrowLeft")
    figure.locator("svg").click()
    steps.nth(3).click()
    page.keyboard.press("ArrowRight")
    assert seen.count() == 5
    assert steps.nth(4).evaluate("one => one === document.activeElement")


def test_a_button_copies_the_code_of_a_block(built: Path, opened: ChromiumPage):
    page = opened.open(at(built, "attention"))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    assert page.locator(".output button.copy").count() == 0
    page.get_by_role("button", name="copy").first.click()
    page.get_by_role("button", name="copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").startswith("import clearhead\n\nmodel = ")


@pytest.mark.parametrize("name", names())
def test_slides_turn_by_page_keys_and_none_runs_over(built: Path, opened: ChromiumPage, name: str):
    page = opened.open(at(built, name))
    if not page.locator(".explorer, .slides-please").count():
        return
    page.get_by_role("button", name="Show as slides").click()
    assert page.locator("article h1").is_visible()
    for width, height in ((1280, 720), (1024, 768)):
        page.set_viewport_size({"width": width, "height": height})
        page.keyboard.press("PageDown")
        n = int(page.locator(".slides-bar span").inner_text().partition(" of ")[2])
        assert n > 2
        for _ in range(n):
            over = page.evaluate("document.documentElement.scrollHeight - innerHeight")
            assert over <= 0, page.locator(".slides-bar span").inner_text()
            page.keyboard.press("PageDown")
        assert not page.locator("article h1").is_visible()
        for _ in range(n):
            page.keyboard.press("PageUp")
    page.keyboard.press("Escape")
    assert page.locator("article h1").is_visible()


def test_an_arrow_steps_the_drawing_of_a_slide_before_it_turns(built: Path, opened: ChromiumPage):
    page = opened.open(at(built, "attention"))
    page.get_by_role("button", name="Show as slides").click()
    drawing = page.locator(".drawing").first
    while not drawing.is_visible():
        page.keyboard.press("ArrowRight")
    count, n = page.locator(".slides-bar span").inner_text(), drawing.locator("button").count()
    for step in range(1, n):
        page.keyboard.press("ArrowRight")
        assert drawing.locator("button").nth(step).get_attribute("aria-current") == "step"
        assert page.locator(".slides-bar span").inner_text() == count
    page.keyboard.press("ArrowRight")
    assert page.locator(".slides-bar span").inner_text() != count


def test_ctrl_k_opens_the_search_the_first_time_and_keeps_what_is_typed(built: Path, opened: ChromiumPage):
    page = opened.open(at(built, "attention"))
    page.keyboard.press("Control+k")
    page.keyboard.type("backpropagation")
    page.locator("mark").first.wait_for()
    assert page.url.endswith("attention.html")


def test_the_search_works_from_a_disk(built: Path, opened: ChromiumPage):
    page = opened.open(at(built, "index"))
    assert not any(url.endswith("search.js") for url in opened.requests)
    page.locator(".md-search__button").click()
    page.keyboard.type("residual", delay=80)
    page.locator("mark").first.wait_for()


def test_a_chapter_leads_to_its_stop_of_the_walk_and_back(built: Path, opened: ChromiumPage):
    page = opened.open(at(built, "attention"))
    page.get_by_role("link", name="This step of the walk").click()
    page.locator(".walk .sentence").wait_for()
    link = page.locator(".walk .more a").get_attribute("href")
    assert link == "../course/attention.html"
