"""The page in windows of every size, and with as long a text as a model takes."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import pytest

from clearhead import config as c
from tests.explorer.browser.conftest import Open, Serve
from tests.explorer.browser.page import Served, becomes, fragment
from tests.explorer.browser.trained import TOKENIZER, random_model, stack
from tests.explorer.browser.views import VIEWS, show

if TYPE_CHECKING:
    from playwright.sync_api import ViewportSize

SOURCE, TARGET = "seven two nine one", "eins neun zwei sieben"
SIZES: dict[str, ViewportSize] = {
    "large": {"width": 1600, "height": 1000}, "middle": {"width": 1280, "height": 800},
    "narrow": {"width": 400, "height": 800}, "zoomed to 200 %": {"width": 800, "height": 500},
}  # fmt: skip
LONG = 512
MOVES = 120
WIDE = """() => {
  const room = document.documentElement.clientWidth;
  const clipped = (at) => {
    for (let up = at.parentElement; up; up = up.parentElement) {
      if (getComputedStyle(up).overflowX !== "visible") return true;
    }
    return false;
  };
  const out = [...document.querySelectorAll(".clearhead *")].filter((at) =>
    at.getBoundingClientRect().right > room + 1 && !clipped(at) && !at.closest(".visually-hidden, svg"));
  const named = out.slice(0, 3).map((at) => `${at.tagName}.${at.className} to ${at.getBoundingClientRect().right}`);
  return [document.documentElement.scrollWidth - room, named];
}"""


OF_TEXTS = [view for view in VIEWS if view not in ("image", "training")]


@pytest.mark.parametrize(
    "view", [view if i % 2 == 0 else pytest.param(view, marks=pytest.mark.slow) for i, view in enumerate(OF_TEXTS)]
)
def test_nothing_makes_the_page_scroll_sideways(shared_page: Open, view: str) -> None:
    opened = shared_page("translator", fragment(SOURCE, TARGET, layer=1))
    show(opened, view)
    for name, size in SIZES.items():
        opened.page.set_viewport_size(size)
        opened.quiet()
        beyond, what = opened.page.evaluate(WIDE)
        assert beyond <= 0, (name, what)


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


@pytest.mark.slow
def test_the_pointer_over_512_tokens(open_page: Open, long: Served) -> None:
    """From a move over the weights to the next picture. 32 ms is the aim, of a machine with nothing else to do."""
    opened = open_page(long)
    show(opened, "attention")
    heat = opened.page.locator("main .heat").last
    heat.wait_for()
    heat.scroll_into_view_if_needed()
    box = heat.bounding_box()
    assert box is not None
    opened.page.evaluate("""() => {
      window.__moves = [];
      document.addEventListener("pointermove", () => {
        const start = performance.now();
        requestAnimationFrame(() => setTimeout(() => window.__moves.push(performance.now() - start)));
      }, { capture: true });
    }""")
    for i in range(MOVES):
        x, y = (i * 37) % 101 / 101, (i * 53) % 97 / 97
        opened.page.mouse.move(box["x"] + x * (box["width"] - 2) + 1, box["y"] + y * (box["height"] - 2) + 1)
    times: list[float] = opened.page.evaluate("window.__moves")
    assert len(times) > MOVES / 2
    median, p95 = statistics.median(times), statistics.quantiles(times, n=20)[-1]
    print(f"pointer over {LONG} tokens: median {median:.1f} ms, p95 {p95:.1f} ms")
    assert median < 100
    assert opened.page.locator(".lens").count() == 1, "the lens is open"


def test_moves_of_the_selection_over_512_tokens(open_page: Open, long: Served) -> None:
    """Arrows go on to the last position."""
    opened = open_page(long, fragment(long.session.start.text, query=LONG - 3, key=LONG - 3))
    opened.quiet()
    opened.press("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight")
    becomes(lambda: [opened.fragment().get(name) for name in ("query", "key")], [str(LONG - 1), str(LONG - 2)])
