"""The page in windows of every size, and with as long a text as a model takes."""

from __future__ import annotations

import pytest

from clearhead import config as c
from tests.explorer.browser.checks import SIZES, WIDE, fits
from tests.explorer.browser.conftest import Open, Serve
from tests.explorer.browser.page import Served, becomes, fragment
from tests.explorer.browser.seeing import SOURCE, TARGET
from tests.explorer.browser.trained import TOKENIZER, random_model, stack
from tests.explorer.browser.views import VIEWS, show

LONG = 512


OF_TEXTS = [view for view in VIEWS if view not in ("image", "training")]


@pytest.mark.parametrize(
    "view", [view if i % 2 == 0 else pytest.param(view, marks=pytest.mark.slow) for i, view in enumerate(OF_TEXTS)]
)
def test_nothing_makes_the_page_scroll_sideways(shared_page: Open, view: str) -> None:
    opened = shared_page("translator", fragment(SOURCE, TARGET, layer=1))
    show(opened, view)
    fits(opened.page, *SIZES)


@pytest.fixture(scope="module")
def long(serve: Serve) -> Served:
    """A model that reads 512 tokens, on 512 of them."""
    config = c.ModelConfig(decoder=stack(positions=c.Learned(max_length=LONG)))
    words = "one two three four five six seven eight nine ten".split()
    return serve("long", random_model(config, TOKENIZER), text=" ".join(words[i * i % 10] for i in range(LONG)))


def test_512_tokens_in_every_view(open_page: Open, long: Served) -> None:
    """Each opens, and none puts as many elements into the page as there are cells."""
    opened = open_page(long)
    for view in VIEWS:
        if view in ("image", "training"):
            continue
        show(opened, view)
        assert opened.alert is None, view
        assert opened.page.locator("main").inner_text().strip(), view
        count = opened.page.evaluate("document.querySelectorAll('.clearhead *').length")
        assert count < 20_000, (view, count)
        assert opened.page.evaluate(WIDE)[0] <= 0, view


def test_moves_of_the_selection_over_512_tokens(open_page: Open, long: Served) -> None:
    """Arrows go on to the last position."""
    opened = open_page(long, fragment(long.session.start.text, query=LONG - 3, key=LONG - 3))
    opened.quiet()
    opened.press("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight")
    # Each press draws 512 x 512 cells anew, which a busy machine takes seconds for.
    becomes(lambda: [opened.fragment().get(one) for one in ("query", "key")], [str(LONG - 1), str(LONG - 2)], 30.0)


SHELL = """() => {
  const parts = [...document.querySelectorAll(".top *, nav.left *, aside.right *, .ribbon *, .heading *")];
  const said = parts.filter((one) => one.tagName !== "SUB"
    && [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim()));
  const list = [...document.querySelectorAll("nav.left li button")], main = document.querySelector("main");
  return {
    small: said.filter((one) => parseFloat(getComputedStyle(one).fontSize) < 12).map((one) => one.textContent),
    cut: [...list, document.querySelector("#text")].filter((one) => one.scrollWidth > one.clientWidth).length,
    wrapped: list.filter((one) => one.offsetHeight > 28).map((one) => one.textContent),
    below: list.filter((one) => one.getBoundingClientRect().bottom > innerHeight).map((one) => one.textContent),
    stage: [main.clientWidth - 24, innerHeight - main.getBoundingClientRect().top],
  };
}"""


@pytest.mark.parametrize("locale", ["en-GB", "de-DE", "es-ES", "fr-FR", "ja-JP", "zh-CN"])
def test_what_stands_around_the_stage(open_page: Open, locale: str) -> None:
    """At 1280 x 800 nothing is under 12 px, no name is cut, wrapped or below the window, and the stage has room."""
    place = fragment(SOURCE, TARGET, layer=1)
    opened = open_page("translator", place, viewport={"width": 1280, "height": 800}, locale=locale)
    found = opened.page.evaluate(SHELL)
    width, height = found.pop("stage")
    assert found == {"small": [], "cut": 0, "wrapped": [], "below": []}
    assert width >= 860
    assert height >= 700
