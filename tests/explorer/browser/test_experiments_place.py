"""Patching, circuits and steering open with two texts and what is found between them; a set shows Python's means."""

import pytest

from clearhead.api import load
from clearhead.capture import Prompt, over_prompts
from tests.explorer.browser.checks import fits, violations
from tests.explorer.browser.conftest import Open, Serve, Served
from tests.explorer.browser.numbers import agrees
from tests.explorer.browser.page import becomes, eventually, fragment
from tests.small_models import TEXTS


@pytest.fixture
def served(serve: Serve, folder_of) -> Served:
    return serve("writer with data", load(folder_of("writer")), folder=folder_of("writer"), data=TEXTS)


@pytest.mark.parametrize("view", ["patching", "circuits", "steering"])
def test_it_opens_with_a_drawn_figure(open_page: Open, served: Served, view: str) -> None:
    opened = open_page(served, fragment(TEXTS[0], view=view))
    opened.page.locator("main h3.found").wait_for()
    opened.page.locator("main :is(.sweeps td, svg circle, svg .node)").first.wait_for()
    assert opened.page.locator("main .gap").count() == 0
    assert violations(opened.page) == []
    fits(opened.page)


def test_a_set(open_page: Open, served: Served) -> None:
    """Means of the heads in the grid, and the interval of the cell that is chosen."""
    opened = open_page(served, fragment(TEXTS[0], view="patching"))
    opened.button("A set", "main").click()
    opened.button("Heads", "main").click()
    typed = opened.page.get_by_label("Pairs, one a line")
    becomes(lambda: len(typed.input_value().splitlines()) > 1, True)
    opened.page.locator("main h3.found").wait_for()
    pairs = [Prompt((a,), (b,)) for a, b in (line.split("\t") for line in typed.input_value().splitlines()[1:])]
    last = served.model.inputs(TEXTS[0], None)[-1].ids.shape[1] - 1
    found = {one.site: one for one in over_prompts(served.model, pairs, position=last)}

    def are_means() -> None:
        figures = opened.figures()
        assert "Decoder · self-attention" in figures  # It is drawn again for more pairs.
        cells = figures["Decoder · self-attention"].cells
        for row, block in enumerate((1, 0)):
            for h in (0, 1):
                assert agrees(cells[row, h], found[f"decoder.blocks.{block}.attn.z[h={h}]"].mean), cells

    eventually(are_means)
