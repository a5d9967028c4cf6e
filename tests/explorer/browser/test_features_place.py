"""The place of features: what is active at a token, and a slider for one of them, against Python."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from clearhead.analysis.features import Features, Site
from clearhead.api.features import attach
from tests.explorer.browser.conftest import Open, Serve
from tests.explorer.browser.numbers import agrees
from tests.explorer.browser.page import Served, becomes, eventually, fragment
from tests.explorer.browser.test_accessibility import axe, violations
from tests.small_models import model_of

__all__ = ["axe"]
TEXT, AT = "one two three", "decoder.blocks.0.resid_post"


@pytest.fixture(scope="module")
def featured(serve: Serve) -> Served:
    model = model_of("nano", n_layers=2)
    torch.manual_seed(0)
    sizes = torch.randn(16, 40), torch.zeros(40), torch.randn(40, 16), torch.zeros(16)
    attach(model.network, Features(Site(AT, AT), *sizes, k=6, source="'features/stream', model.network"))
    return serve("featured", model, text=TEXT)


def test_features_of_a_token_and_an_edit_of_one(featured: Served, open_page: Open, axe: str) -> None:
    opened = open_page(featured, fragment(TEXT, view="features", stack="decoder", query=1))
    page = opened.page
    seen, _ = featured.trace(TEXT)
    row = seen[f"{AT}.features"][0, 1]
    strongest = row.topk(6).indices.tolist()

    def shown(expected: torch.Tensor) -> None:
        rows = opened.rows("Active at ▁two")
        order = [i for i in expected.topk(6).indices.tolist() if expected[i] > 0]
        assert [int(cells[0]) for cells in rows][: len(order)] == order
        for cells, i in zip(rows, order, strict=False):
            assert agrees(cells[2].split()[0], float(expected[i]))

    eventually(partial(shown, row))
    slider = page.get_by_role("slider", name=f"Feature {strongest[0]} at ▁two")
    slider.fill(str(float(slider.get_attribute("max") or 0)))
    at = f"{AT}.features[f={strongest[0]},t=1]"
    becomes(lambda: [edit["at"] for edit in opened.fragment().get("edits", [])], [at])
    opened.quiet()
    (edit,) = opened.fragment()["edits"]
    changed, _ = featured.trace(TEXT, edit={at: edit["value"]})
    eventually(partial(shown, changed[f"{AT}.features"][0, 1]))
    assert violations(opened, axe) == []
    page.get_by_role("button", name="Switch it off").click()
    off, _ = featured.trace(TEXT, edit={at: 0.0})
    eventually(partial(shown, off[f"{AT}.features"][0, 1]))
    page.get_by_role("button", name="As it was").click()
    eventually(partial(shown, row))
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
