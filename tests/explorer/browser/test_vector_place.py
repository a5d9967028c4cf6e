"""A sentence encoder in the page: how its vector is made, the cosine with another text, a head, a direction."""

from __future__ import annotations

import pytest
import torch

from clearhead.api import Model
from clearhead.api.steering import direction
from clearhead.explorer.answering.passes import LOCK
from clearhead.trace import Edit
from tests.explorer.browser.checks import violations
from tests.explorer.browser.conftest import Open, Serve
from tests.explorer.browser.numbers import agrees
from tests.explorer.browser.page import Served, becomes, eventually, fragment
from tests.explorer.traced import CONFIGS, model_of

TEXT, OTHER, AT = "one two three", "four five", "encoder.blocks.0.resid_post"


@pytest.fixture(scope="module")
def encoder(serve: Serve) -> Served:
    return serve("states", model_of(CONFIGS["encoder_states"]), text=TEXT)


def cosine(model: Model, **edit: Edit) -> float:
    """Of the text's vector with and without the edits."""
    with LOCK:
        plain, changed = (model.trace(TEXT, edit=one)[1].mean(0) for one in (None, edit))
    return torch.cosine_similarity(plain, changed, dim=0).item()


def test_a_vector_and_what_turns_it(encoder: Served, open_page: Open) -> None:
    opened = open_page(encoder, fragment(TEXT, view="vector", dim=3))
    page, model = opened.page, encoder.model
    with LOCK:
        one, other = model.embed([TEXT, OTHER])
    field = page.get_by_role("textbox", name="another text")
    field.fill(OTHER)
    field.press("Enter")

    def compared() -> None:
        cells = next(row for row in opened.rows("Similarity to other texts") if row[0].startswith(OTHER))
        assert agrees(cells[-1], float(one @ other))
        terms = opened.rows("products of the components")
        largest = int((one * other).abs().argmax())
        assert terms[0][0] == f"[{largest}]"
        assert agrees(terms[0][-2], float(one[largest] * other[largest]))

    eventually(compared)
    made = page.locator(".made .result dd b")
    becomes(lambda: agrees(made.inner_text(), float(one[3])), True)
    assert violations(opened.page) == []

    head = "encoder.blocks.1.attn.z[h=0]"
    opened.follow(fragment(TEXT, view="vector", edits=[{"at": head, "do": "zero"}], side="b"))
    turned = page.get_by_test_id("turned")
    off = cosine(model, **{head: 0.0})
    becomes(lambda: agrees(turned.inner_text().split("= ")[1].split(",")[0], off), True)

    opened.follow(fragment(TEXT, view="steering"))
    page.get_by_label("Push towards").fill("one two\nthree")
    page.get_by_label("and away from").fill("five\nfour four")
    page.get_by_label("Added at").select_option(AT)
    opened.button("Find the direction").click()
    page.get_by_role("slider", name="Strength").fill("2")
    with LOCK:
        found = direction(model, ["one two", "three"], ["five", "four four"], at=AT)
    wanted = cosine(model, **found.edit(2.0))
    becomes(lambda: agrees(turned.inner_text().split("= ")[1].split(",")[0], wanted), True)
    assert violations(opened.page) == []
    opened.follow(fragment(TEXT, view="steering", edits=opened.fragment()["edits"], mode="research", side="b"))
    assert "direction(model, " in opened.code()
