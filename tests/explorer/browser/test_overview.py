"""The overview, on which the page opens: its sentence and its bars are Python's numbers, and one switch moves them."""

from __future__ import annotations

import re

import pytest

from clearhead.analysis.overview import Overview
from clearhead.explorer.answering.passes import LOCK
from clearhead.trace import zero
from tests.explorer.browser.checks import fits, focused, violations
from tests.explorer.browser.conftest import Open
from tests.explorer.browser.numbers import agrees
from tests.explorer.browser.page import Opened, becomes, eventually, fragment, said
from tests.explorer.browser.seeing import INPUTS

Z = re.compile(r"(encoder|decoder)\.blocks\.(\d+)\.(attn|cross)\.z\[h=(\d+)\]")


SMALL = """() => [...document.querySelectorAll(".overview *")]
  .filter((one) => [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
  .filter((one) => parseFloat(getComputedStyle(one).fontSize) < 12).map((one) => one.textContent)"""


def opening(open_page: Open, name: str, state: str = "", **options: object) -> Opened:
    """The page as it opens, with all of its overview."""
    opened = open_page(name, state, **options)
    opened.page.locator(".overview .stage [role=switch], .overview .about p").first.wait_for()
    opened.quiet()
    return opened


def bars(opened: Opened) -> dict[str, str]:
    """The shares of the answers by their words, as they stand."""
    rows = opened.page.locator(".answers li:not(.others)").evaluate_all(
        "rows => rows.map((row) => ['.name', '.p'].map((part) => row.querySelector(part).textContent.trim()))"
    )
    return dict(rows)


def test_the_page_opens_on_it(open_page: Open) -> None:
    opened = opening(open_page, "translator")
    becomes(lambda: opened.fragment().get("view"), "overview")
    assert opened.page.locator(".tale").inner_text().endswith(".")


@pytest.mark.parametrize("name", ["translator", "filler"])
def test_it_shows_what_decides(open_page: Open, name: str) -> None:
    """The switch of the head that decides stands there: off, the answers are those of Python's pass without it."""
    text, target = INPUTS[name]
    opened = opening(open_page, name, fragment(text, target, view="overview"))
    page, served = opened.page, opened.served
    assert page.locator(".ribbon, nav.left, aside.right").count() == 0, "at most three areas"
    before = bars(opened)
    best, first = next(iter(before.items()))
    sentence = page.locator(".tale").inner_text()
    assert f"“{best}” falls from {first} to " in sentence
    page.locator(".overview .stage").get_by_role("switch").click()
    [edit] = eventually(lambda: opened.fragment()["edits"])
    assert Z.fullmatch(edit["at"])
    without = said(page.locator(".tale").inner_text, "Now ")
    opened.quiet()
    logits = served.trace(text, target, edit={edit["at"]: zero})[1].softmax(-1)
    words = [served.model.tokenizer.tokens([i])[0].lstrip("▁") for i in range(logits.shape[-1])]
    after = bars(opened)
    rows = [row for row in logits if all(agrees(share, float(row[words.index(word)])) for word, share in after.items())]
    assert rows, after
    assert after[best] in without
    opened.press("u")
    becomes(lambda: bars(opened), before)


@pytest.mark.parametrize("name", ["translator", "writer"])
def test_a_place_begins_where_the_overview_does(open_page: Open, name: str) -> None:
    """A link that names no head: at the head that decides, and at the position whose answer it decides."""
    text, target = INPUTS[name]
    opened = open_page(name, fragment(text, target, view="output"))
    model = opened.served.model
    with LOCK:
        seen = Overview(model.network, model.reader.inputs(text, target, model.generation))
        at, position = seen.heads[seen.decided].at, seen.position
    found = Z.fullmatch(at)
    assert found is not None
    wanted = dict(zip(("stack", "layer", "part", "head"), found.groups(), strict=True))
    plain = {"stack": "encoder", "layer": "0", "part": "attn", "head": "0"}
    becomes(lambda: {field: opened.fragment().get(field, plain[field]) for field in wanted}, wanted)
    opened.step("Logits → word")
    words = opened.page.locator(".ribbon .chips button")
    becomes(lambda: words.evaluate_all("all => all.findIndex((one) => one.matches('.at'))"), position)


ENDS = """() => {
  const canvas = document.querySelector(".stage canvas"), scale = canvas.width / canvas.clientWidth;
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const box = document.querySelector(".answers .track").getBoundingClientRect();
  const y = box.y + box.height / 2 - canvas.getBoundingClientRect().y, x = canvas.clientWidth - 4;
  return [0, -11].map((by) => copy.getImageData(x * scale, (y + by) * scale, 1, 1).data[3] > 0);
}"""


@pytest.mark.parametrize("width", [1100, 1280, 1920])
def test_the_likeliest_answer_ends_at_its_bar(open_page: Open, width: int) -> None:
    """The headline has one line or two; a block that is open has a taller card."""
    opened = opening(open_page, "translator", viewport={"width": width, "height": 800})
    becomes(lambda: opened.page.evaluate(ENDS), [True, False])
    opened.page.get_by_role("button", name=re.compile("^decoder, block 1: ")).click()
    opened.page.locator(".maps").wait_for()
    becomes(lambda: opened.page.evaluate(ENDS), [True, False])


def test_zoom_and_back(open_page: Open) -> None:
    """A block, a head of it, its attention, and with Esc all the way back."""
    opened = opening(open_page, "translator")
    page = opened.page

    def place() -> list[str | None]:
        return [opened.fragment().get(name) for name in ("view", "zoom", "stack", "layer")]

    page.get_by_role("button", name=re.compile(r"^decoder, block 1: its strongest head moves ")).click()
    becomes(place, ["overview", "block", "decoder", "1"])
    page.locator(".maps").get_by_role("button", name=re.compile("cross-attention, head 1")).click()
    becomes(place, ["overview", "head", "decoder", "1"])
    assert "Decoder, block 1, cross-attention, head 1" in said(page.locator(".about [role=heading]").inner_text)
    opened.button("Open its attention ›").click()
    opened.settled()
    becomes(lambda: [opened.fragment().get(name) for name in ("view", "part", "head")], [None, "cross", "1"])
    for wanted in (["overview", "head"], ["overview", "block"], ["overview", None]):
        opened.press("Escape")
        becomes(lambda: place()[:2], wanted)


def test_by_the_keyboard(open_page: Open) -> None:
    opened = opening(open_page, "writer")
    opened.press("ArrowRight", "ArrowRight")
    assert focused(opened.page)["name"].startswith("Block 1: ")
    opened.press("Enter")
    becomes(lambda: opened.fragment().get("zoom"), "block")
    opened.press("Escape")
    becomes(lambda: opened.fragment().get("zoom"), None)
    opened.page.evaluate("document.activeElement.blur()")
    opened.press("ArrowDown", "ArrowDown", "Enter")
    becomes(lambda: opened.fragment().get("zoom"), "word")
    assert opened.page.locator(".about .go").count() > 0
    assert violations(opened.page) == []


def test_on_a_phone(open_page: Open) -> None:
    """The sentence, the switch, and the picture are seen at once; nothing is wider than the window."""
    opened = opening(open_page, "translator", viewport={"width": 390, "height": 844})
    for part in (".tale", ".stage [role=switch]", ".stage canvas"):
        box = opened.page.locator(f".overview {part}").bounding_box()
        assert box is not None
        assert 0 <= box["y"] <= 844 - box["height"], part
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert violations(opened.page) == []
    assert opened.page.evaluate(SMALL) == []
    fits(opened.page)


@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 800), (1920, 1080)])
def test_both_texts_are_read_whole(open_page: Open, width: int, height: int) -> None:
    """Nothing of a long sentence is cut; Enter reads what is typed, and a line may be broken."""
    opened = opening(open_page, "translator", viewport={"width": width, "height": height})
    field = opened.page.locator("#text")
    field.fill("one two three four five six seven eight nine ten one two three four")
    assert field.evaluate("one => [one.scrollWidth - one.clientWidth, one.scrollHeight - one.clientHeight]") == [0, 0]
    field.press("Enter")
    becomes(lambda: opened.fragment().get("s"), field.input_value())


def test_a_picture(open_page: Open) -> None:
    """It stands at the left, and its regions are the words."""
    opened = opening(open_page, "seer")
    assert opened.page.get_by_role("img", name="The picture that the model reads").count() == 1
    assert opened.page.locator(".overview .patch").count() == 9
    assert opened.page.locator(".where b").first.inner_text().startswith("This model names the picture")
