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
    becomes(lambda: [opened.fragment().get(name) for name in ("query", "key")], [str(LONG - 1), str(LONG - 2)])
