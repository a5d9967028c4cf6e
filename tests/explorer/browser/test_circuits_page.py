"""Circuits in the page: found, pruned, an edge opened and followed, by pointer and keyboard, on every kind of model."""

from clearhead.analysis.circuits import patched_edges
from clearhead.analysis.features import Features
from clearhead.api.circuits import circuits_of
from clearhead.explorer.answering.passes import LOCK
from clearhead.explorer.recording.tokens import read
from tests.explorer.browser.conftest import Open
from tests.explorer.browser.page import Opened, Served, becomes, eventually, fragment
from tests.explorer.browser.seeing import right
from tests.explorer.browser.test_accessibility import axe, violations  # noqa: F401
from tests.explorer.browser.test_features_place import TEXT, featured  # noqa: F401

SOURCE, OTHER, TARGET = "seven two nine one", "seven six nine one", "eins neun zwei sieben"


def find(opened: Opened, corrupt: str) -> None:
    """Asks for a circuit, and waits until all of it is there."""
    form = opened.page.locator("main form")
    form.locator("input").first.fill(corrupt)
    form.locator("button").click()
    opened.page.locator("main .number").wait_for()
    form.locator("progress").wait_for(state="detached")


def test_a_circuit_of_a_translator(shared_page: Open, axe: str) -> None:  # noqa: F811
    opened = shared_page("translator", fragment(SOURCE, TARGET))
    opened.follow(fragment(SOURCE, TARGET, view="circuits", position=2))
    find(opened, OTHER)
    model = opened.served.model
    clean, other = (read(model, text, TARGET).inputs for text in (SOURCE, OTHER))
    circuits, _ = circuits_of(model, clean, [other[0], clean[1]], position=2)
    best = circuits.edges().top(1)[0]
    numbers = opened.page.locator("main .number").inner_text().split(": ")[-1].split()
    right(numbers[0], circuits.ends[0])
    rows = opened.page.locator("main ul[aria-label^='Edges'] button")
    right(rows.first.inner_text().rsplit(": ", 1)[1], best.score)
    before = rows.count()
    slider = opened.page.get_by_role("slider", name="How many of the strongest")
    slider.fill("5")
    eventually(lambda: _fewer(rows.count(), before))
    slider.fill("40")
    becomes(rows.count, before)
    rows.first.focus()
    rows.first.press("Enter")
    card = opened.page.locator("section.card", has=opened.page.locator("#edge-card"))
    card.locator("tbody").first.wait_for()
    pair = best.writer, best.reader
    right(card.locator("p.small").first.inner_text().rstrip(".").split()[-1], patched_edges(circuits, [pair])[pair])
    rows.first.press("ArrowDown")
    rows.nth(1).press("Enter")
    eventually(lambda: _pressed(rows.nth(1).get_attribute("aria-pressed")))
    assert violations(opened, axe) == []
    head = card.get_by_role("button", name="head")
    if head.count():
        head.first.click()
        eventually(lambda: _at(opened.fragment().get("view", "attention"), "attention"))


def test_features_are_parts_and_an_edge_opens_one(
    featured: Served,  # noqa: F811
    open_page: Open,
    axe: str,  # noqa: F811
) -> None:
    """The strongest edge to a feature: its numbers are Python's, and its name opens the feature where it matters."""
    opened = open_page(featured, fragment(TEXT, view="circuits"))
    find(opened, "one five three")
    page, own = opened.page, featured.model.network.attached[0]
    assert isinstance(own, Features)
    with LOCK:
        inputs = [read(featured.model, text).inputs for text in (TEXT, "one five three")]
        circuits, _ = circuits_of(featured.model, *inputs, features=[own])
        best = next(edge for edge in circuits.edges().top() if edge.reader.startswith(f"{own.address}["))
        exact = patched_edges(circuits, [(best.writer, best.reader)])
        shares = circuits.nodes().positions[best.reader]
    every = page.get_by_role("slider", name="How many of the strongest")
    every.fill(str(every.get_attribute("max")))
    number = int(best.reader.partition("=")[2][:-1])
    rows = page.locator("main ul[aria-label^='Edges'] button", has_text=f"→ Decoder 0 · resid_post · feature {number}:")
    right(rows.first.inner_text().rsplit(": ", 1)[1], best.score)
    rows.first.click()
    card = page.locator("section.card", has=page.locator("#edge-card"))
    card.locator("tbody").first.wait_for()
    right(card.locator("p.small").first.inner_text().rstrip(".").split()[-1], exact[best.writer, best.reader])
    assert violations(opened, axe) == []
    page.set_viewport_size({"width": 390, "height": 844})
    opened.quiet()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 1600, "height": 1000})
    card.get_by_role("button", name=f"feature {number}").click()
    becomes(lambda: opened.fragment().get("view"), "features")
    state, at = opened.fragment(), int(shares.abs().argmax())
    assert (state["feature"], int(state.get("query", 0))) == (str(number), at)
    page.get_by_role("slider", name=f"Feature {number} at").wait_for()
    opened.follow(fragment(TEXT, view="circuits"))
    page.get_by_role("checkbox", name="features as parts").uncheck()
    find(opened, "one five three")
    assert page.get_by_text("resid_post · feature").count() == 0


def test_on_a_phone(shared_page: Open) -> None:
    opened = shared_page("writer", fragment("one two three four"))
    opened.page.set_viewport_size({"width": 390, "height": 844})
    opened.follow(fragment("one two three four", view="circuits"))
    find(opened, "one two six four")
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390


def _fewer(now: int, before: int) -> None:
    assert now < before


def _pressed(state: str | None) -> None:
    assert state == "true"


def _at(view: str, wanted: str) -> None:
    assert view == wanted
