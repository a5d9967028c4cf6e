"""What a teacher hands on: a walk as a file, a link and a page; a picture; an export inside another page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from clearhead.explorer.session import Session
from tests.explorer.browser.checks import fits, violations
from tests.explorer.browser.conftest import Open
from tests.explorer.browser.files import written
from tests.explorer.browser.page import Opened, becomes, fragment, said
from tests.explorer.browser.seeing import SOURCE, TARGET
from tests.explorer.conftest import ChromiumPage

if TYPE_CHECKING:
    from playwright.sync_api import Browser


CROSS = {"stack": "decoder", "part": "cross", "layer": 1, "head": 1, "query": 2, "key": 3}
EDIT = {"at": "encoder.blocks.1.attn.z[h=0]", "do": "zero"}
SENTENCE = "<img src=x onerror=alert(1)> “{query}” asks the source."


def type_in(opened: Opened, label: str, text: str) -> None:
    field = opened.page.get_by_label(label, exact=True)
    field.fill(text)
    field.blur()


def save(opened: Opened, button: str, path: Path) -> Path:
    with opened.page.expect_download() as saved:
        opened.button(button).click()
    saved.value.save_as(path)
    return path


def plays(opened: Opened) -> None:
    """Both stops of the walk that the test records."""
    opened.settled()
    becomes(opened.page.locator(".progress").inner_text, "1 of 2")
    said(opened.page.locator(".sentence").inner_text, "<img src=x onerror=alert(1)> “neun” asks the source.")
    wanted = {name: str(value) for name, value in CROSS.items()}
    becomes(lambda: {name: opened.fragment().get(name) for name in CROSS}, wanted)
    opened.press("n")
    said(opened.page.locator(".sentence").inner_text, "One head less.")
    becomes(lambda: opened.fragment().get("edits"), [EDIT])
    assert opened.fragment()["s"] == "three four"
    assert opened.alert is None
    opened.page.get_by_role("button", name="It shrinks.").click()
    said(opened.page.locator(".check").inner_text, "Right. Heads work together.")


def test_a_recorded_walk_is_handed_on(open_page: Open, open_file: Open, tmp_path: Path) -> None:
    """Two stops, typed and put in order; the file, the link and the page of it play the same."""
    opened = open_page("translator", fragment(SOURCE, TARGET, **CROSS))
    opened.menu("Record a walk")
    opened.button("Add this view").click()
    assert opened.page.evaluate("document.activeElement.getAttribute('aria-label')") == "Sentence of stop 1"
    type_in(opened, "Sentence of stop 1", SENTENCE)
    opened.follow(fragment("three four", view="logits", side="b", edits=[EDIT]))
    opened.button("Add this view").click()
    type_in(opened, "Sentence of stop 2", "One head less.")
    opened.page.get_by_text("Question", exact=True).nth(1).click()
    stop = opened.page.locator(".own li").nth(1)
    for label, text in (
        ("What to predict", "What happens?"),
        ("Answers, one a line, * before the right one", "It grows.\n* It shrinks."),
        ("Why", "Heads work together."),
    ):
        stop.get_by_label(label).fill(text)
        stop.get_by_label(label).blur()
    opened.button("Move stop 2 up").click()
    opened.button("Move stop 1 down").click()
    type_in(opened, "Title of the walk", "Two stops")
    assert violations(opened.page) == []
    fits(opened.page)
    file = save(opened, "Save as a file", tmp_path / "walk.json")
    assert json.loads(file.read_text())["name"] == "own-two-stops"
    opened.button("Menu").click()
    page = save(opened, "This page as one file (HTML)", tmp_path / "page.html")
    plays(open_file(opened.served.session, page))

    opened.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened.menu("Share")
    said(opened.page.locator("[role=status]").first.inner_text)
    link: str = opened.page.evaluate("navigator.clipboard.readText()")
    plays(open_page("translator", "#" + link.split("#")[1]))

    fresh = open_page("translator", fragment(SOURCE, TARGET))
    fresh.button("Learn").click()
    fresh.button("Record a walk").click()
    broken = tmp_path / "broken.json"
    broken.write_text(file.read_text().replace('"place": "#v=1', '"place": "javascript:'))
    for path in (broken, file):
        with fresh.page.expect_file_chooser() as chosen:
            fresh.button("Open a file").click()
        chosen.value.set_files(path)
        if path == broken:
            said(lambda: fresh.alert, "stops[0].place is")
    becomes(lambda: fresh.alert, None)
    fresh.button("Play").click()
    plays(fresh)


def test_a_picture_says_what_it_shows(open_page: Open, tmp_path: Path) -> None:
    """Its caption names the place, the run, the text and the model; the figure is the one that had the focus."""
    opened = open_page(
        "translator",
        fragment(SOURCE, TARGET, **CROSS, side="b", edits=[{"at": "decoder.blocks.1.cross.z[h=0]", "do": "zero"}]),
    )
    opened.quiet()
    sizes = []
    for tab in (False, True):
        if tab:
            opened.page.locator("main figure:last-of-type [tabindex='0']").last.focus()
        opened.button("Menu").click()
        svg = save(opened, "Figure as SVG", tmp_path / "figure.svg").read_text()
        root = ET.fromstring(svg)
        text = " ".join("".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text"))
        assert "Decoder, block 1, cross-attention, head 1 › Softmax › B head 0 off" in " ".join(text.split())
        assert f"“{SOURCE}” → “{TARGET}”" in text
        assert "translator · encoder\N{EN DASH}decoder · 2 + 2 layers" in text
        sizes.append(float(root.attrib["width"]) * float(root.attrib["height"]))
    assert sizes[1] != sizes[0], "another figure"
    opened.button("Menu").click()
    png = save(opened, "Figure as PNG", tmp_path / "figure.png").read_bytes()
    assert png[:4] == b"\x89PNG"
    assert int.from_bytes(png[16:20], "big") == 2 * int(root.attrib["width"])


@pytest.mark.parametrize("sandbox", ["", 'sandbox="allow-scripts"'], ids=["plain", "sandboxed"])
def test_an_export_inside_another_page(chromium: Browser, translator: Session, tmp_path: Path, sandbox: str) -> None:
    """The fragment says the place; it computes, follows the page around it, and stays within its frame."""
    written(translator, tmp_path / "page.html")
    place = fragment(SOURCE, TARGET, **CROSS)[1:].replace("&", "&amp;")
    around = tmp_path / "around.html"
    frame_of = f'<iframe src="page.html#{place}" width="700" height="600" {sandbox}></iframe>'
    around.write_text(f"<!doctype html><title>A lesson</title>{frame_of}")
    context = chromium.new_context(offline=True, locale="en-GB")
    opened = ChromiumPage(context.new_page())
    frame = opened.open(around).frame_locator("iframe")
    heading = frame.locator(".heading h2 span")
    becomes(heading.all_inner_texts, ["Attention", "Decoder, block 1, cross-attention, head 1"])
    frame.locator(".change").get_by_role("button", name="off", exact=True).click()
    said(frame.locator(".sides").inner_text, "head 1 off")
    becomes(frame.locator(".answer td.b").count, frame.locator(".answer td.a").count())
    assert frame.locator("body").evaluate("() => document.documentElement.scrollWidth") <= 700
    opened.page.evaluate("() => (document.querySelector('iframe').src = 'page.html#v=1&s=three+four&view=tokens')")
    becomes(heading.all_inner_texts, ["Text → tokens"])
    becomes(frame.locator("#text").input_value, "three four")
    context.close()
    assert opened.complaints == []
