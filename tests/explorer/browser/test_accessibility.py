"""axe-core on every view, light and dark, with a run B and without; the keyboard alone; contrast modes."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.explorer.browser.checks import focused, violations
from tests.explorer.browser.conftest import Open
from tests.explorer.browser.page import Opened, Served, becomes, fragment, said
from tests.explorer.browser.seeing import SOURCE, TARGET
from tests.explorer.browser.views import VIEWS, show

SLOW = pytest.mark.slow
EDIT = {"at": "encoder.blocks.1.attn.z[h=0]", "do": "zero"}


@pytest.mark.parametrize("view", [view for view in VIEWS if view not in ("image", "training")])
def test_a_view_of_a_translator(shared_page: Open, view: str) -> None:
    """Beside a run B, which has the colours of both."""
    opened = shared_page("translator", fragment(SOURCE, TARGET, layer=1))
    opened.follow(fragment(SOURCE, TARGET, view=view, layer=1, mode="research", side="b", edits=[EDIT]))
    opened.button("reset").and_(opened.page.locator(":enabled")).wait_for()
    show(opened, view)
    assert violations(opened.page) == []


@pytest.mark.parametrize("view", ["image", *(pytest.param(v, marks=SLOW) for v in ("attention", "logits", "position"))])
def test_a_view_of_images(shared_page: Open, view: str) -> None:
    opened = shared_page("seer", fragment("", image="example:0"))
    show(opened, view)
    assert violations(opened.page) == []


def test_views_of_a_run(open_page: Open, run_of_12_steps: Served) -> None:
    """Training time."""
    opened = open_page(run_of_12_steps)
    show(opened, "training")
    assert violations(opened.page) == []


def test_help(open_page: Open) -> None:
    opened = open_page("writer")
    opened.page.locator("body").press("?")
    opened.page.get_by_role("dialog").wait_for()
    assert violations(opened.page) == []


@pytest.mark.parametrize("options", [{"reduced_motion": "reduce"}, {"forced_colors": "active"}], ids=str)
def test_other_ways_to_see(open_page: Open, options: dict[str, Any]) -> None:
    """Nothing moves by itself; forced colours leave the selection to be seen."""
    opened = open_page("translator", fragment(SOURCE, TARGET, layer=1), **options)
    for view in ("attention", "heads", "residual", "generation"):
        show(opened, view)
    moving = opened.page.evaluate("document.getAnimations().filter((one) => one.playState === 'running').length")
    assert moving == 0
    if "forced_colors" in options:
        show(opened, "attention")
        chosen = opened.page.locator("main td.selected").last
        assert chosen.evaluate("(cell) => getComputedStyle(cell).outlineStyle") == "solid"


# --- the keyboard alone -----------------------------------------------------------------------------------------


def field_of(opened: Opened, name: str) -> Any:
    return opened.fragment().get(name)


def test_everything_by_the_keyboard(open_page: Open) -> None:
    """A text is typed and read, places chosen, a number edited, a head switched off; no pointer anywhere."""
    opened = open_page("translator", fragment(SOURCE, TARGET, layer=1))
    page = opened.page

    def edits() -> list[Any]:
        return opened.fragment().get("edits", [])

    opened.press("/")
    assert focused(opened.page)["id"] == "text"
    opened.press("Control+a")
    page.keyboard.type("four nine two")
    opened.press("Enter")
    becomes(partial(field_of, opened, "s"), "four nine two")
    opened.settled()
    opened.press("Escape")
    assert focused(opened.page)["tag"] == "BODY"

    for key, field, value in (
        ("]", "head", "1"), ("[", "head", None), ("{", "layer", None), ("}", "layer", "1"),
        ("ArrowDown", "query", "1"), ("ArrowRight", "key", "1"), ("ArrowRight", "key", "2"), ("ArrowLeft", "key", "1"),
        (",", "step", "masked"), (".", "step", None),
    ):  # fmt: skip
        opened.press(key)
        becomes(partial(field_of, opened, field), value)

    opened.press("h")
    opened.settled()
    becomes(lambda: len(edits()), 1)
    page.get_by_test_id("moved").wait_for()
    for key, side in (("a", None), ("b", "b"), ("d", "diff"), ("b", "b")):
        opened.press(key)
        becomes(partial(field_of, opened, "side"), side)
    opened.press("u")
    becomes(edits, [])
    opened.press("r")
    becomes(lambda: len(edits()), 1)
    opened.press("h")
    becomes(edits, [])

    opened.press("e")
    assert focused(opened.page)["id"] == "cell"
    page.keyboard.type("0.5")
    opened.press("Enter", "Escape")
    becomes(lambda: [one["value"][1] for one in edits()], [0.5])
    opened.press("u")

    opened.press("?")
    page.get_by_role("dialog").wait_for()
    opened.press("Escape")
    becomes(page.get_by_role("dialog").count, 0)


def test_the_focus_is_seen_everywhere(open_page: Open) -> None:
    """Tab goes to every control and comes to an end; a matrix is one stop, in which the arrows move."""
    opened = open_page("translator", fragment(SOURCE, TARGET, layer=1))
    page = opened.page
    opened.quiet()  # What the overview finds to be decided moves the figure to its position.
    names = []
    for _ in range(150):
        opened.press("Tab")
        now = focused(opened.page)
        if now["tag"] == "BODY":
            break
        assert now["seen"], now
        names.append(now["name"])
    assert 30 < len(names) < 150, names
    page.locator("main figure", has=page.get_by_text("Weights", exact=True)).locator("td[tabindex='0']").focus()
    before = opened.fragment()
    opened.press("Home", "ArrowRight", "ArrowDown", "End")
    assert focused(opened.page)["tag"] == "TD"
    assert opened.fragment() == before, "the cursor is not the selection"
    opened.press("Home", "ArrowRight", "Enter")
    becomes(partial(field_of, opened, "key"), "1")


def test_a_table_for_a_picture(open_page: Open) -> None:
    """T shows it and hides it again."""
    opened = open_page("translator", fragment(SOURCE, TARGET, layer=1))
    figure = opened.page.locator("figure:has(.picture)").first
    figure.locator("td[tabindex='0']").focus()
    for pressed in ("true", "false"):
        opened.press("t")
        assert figure.locator("figcaption button").get_attribute("aria-pressed") == pressed


def test_what_changes_is_said(open_page: Open) -> None:
    """One polite live region, whose sentence is of the new selection."""
    opened = open_page("translator", fragment(SOURCE, TARGET, layer=1))
    live = opened.page.locator(".page > [role=status]")
    assert live.count() == 1
    for key, name in (("ArrowDown", "▁two"), ("ArrowDown", "▁nine"), ("ArrowUp", "▁two")):
        opened.press(key)
        said(live.inner_text, f"{name} to ▁seven: weight")
