"""The difference of two checkpoints as a place: Python's numbers, what a row opens, the keyboard, axe, a phone."""

from __future__ import annotations

import copy

import pytest
import torch

from clearhead.api import load
from clearhead.capture import difference, drawn
from clearhead.explorer.answering.data_sets import LONGEST, SHOWN
from clearhead.explorer.answering.passes import LOCK
from clearhead.explorer.answering.questions import COMPARED
from tests.explorer.browser.checks import fits, violations
from tests.explorer.browser.conftest import Open, Serve
from tests.explorer.browser.numbers import agrees
from tests.explorer.browser.page import Served, becomes, eventually, fragment
from tests.explorer.browser.seeing import are
from tests.small_models import TEXTS

PLANTED, NAMED = "decoder.blocks.1.attn.z[h=1]", "Block 1, head 1"


@pytest.fixture(scope="module")
def compared(serve: Serve, folder_of) -> Served:
    """A model beside one with a changed head."""
    folder = folder_of("writer")
    model = load(folder)
    other = copy.deepcopy(model)
    weight = other.network.get_parameter("decoder.blocks.1.attn.out.weight")
    width = model.config.stacks["decoder"].head_width
    with torch.no_grad():
        weight[:, width : 2 * width] *= -1.5
    return serve("writer and another", model, folder=folder, data=TEXTS, compared=other, compared_name="other")


def test_what_changed_and_where_it_leads(compared: Served, open_page: Open) -> None:
    opened = open_page(compared, fragment(TEXTS[0], stack="decoder", view="difference"))
    opened.page.get_by_text("All numbers").click()
    assert compared.session.compared is not None
    models = compared.model, compared.session.compared
    with LOCK:
        texts = [text for _, text in drawn(TEXTS, 32)]
        found = difference(*models, texts, length=LONGEST, top=SHOWN)

    def is_right() -> None:
        ((name, relative, *_),) = opened.rows("1 of")
        assert name == "decoder.blocks.1.attn.out.weight"
        assert agrees(relative, found.tensors[0].relative)
        heads = opened.rows("Heads")
        assert [one.site for one in found.heads] == [PLANTED]
        assert [row[0] for row in heads] == [NAMED]
        assert agrees(heads[0][1], found.heads[0].own)
        assert found.answers is not None
        changed, _, loss, _ = opened.rows("Answers")
        assert changed[3] == f"{found.answers.changed.value * 100:.0f}\u00a0%"
        assert agrees(loss[3], found.answers.scores["loss"].difference)
        assert agrees(loss[5], found.answers.scores["loss"].p)

    eventually(is_right)
    assert violations(opened.page) == []
    page = opened.page
    fits(page)
    changes = page.locator("main table").nth(-2).locator("tbody button")
    page.locator("main table").get_by_role("button", name=NAMED).focus()
    page.keyboard.press("Tab")
    assert changes.first.evaluate("one => one === document.activeElement")
    if changes.count() > 1:
        page.keyboard.press("ArrowDown")
        assert changes.nth(1).evaluate("one => one === document.activeElement")
    page.locator("main table").get_by_role("button", name=NAMED).press("Enter")
    becomes(lambda: opened.fragment().get("view", "attention"), "attention")
    state = opened.fragment()
    assert (state["layer"], state["head"], state["side"]) == ("1", "1", "diff")
    opened.follow(fragment(TEXTS[0], stack="decoder", view="difference"))
    page.get_by_role("button", name="decoder.blocks.1.attn.out.weight").click()
    becomes(lambda: opened.fragment().get("view"), "output")
    state = opened.fragment()
    assert (state["layer"], state["side"], state["other"]["step"]) == ("1", "diff", COMPARED)
    path, at = "decoder.blocks.1.attn.heads", int(state.get("query", 0))
    one, two = (compared.traced(model, TEXTS[0])[0][path][0, :, at] for model in models)
    eventually(lambda: are(opened.figures(), {"z · W_O": (two - one).tolist()}))
    same = {name: state[name] for name in ("layer", "query", "head") if name in state}
    opened.follow(fragment(TEXTS[0], stack="decoder", view="output", side="b", other=state["other"], **same))
    eventually(lambda: are(opened.figures(), {"z · W_O": two.tolist()}))


def test_checkpoints(run_of_12_steps: Served, open_page: Open) -> None:
    """It opens on the second; the chosen one becomes B; a row opens B − A."""
    opened = open_page(run_of_12_steps, fragment("one two", view="difference"))
    page = opened.page
    steps = run_of_12_steps.session.passes.checkpoints.steps()

    def has_tensors_since(step: int) -> None:
        with LOCK:
            models = run_of_12_steps.model, run_of_12_steps.session.passes.checkpoint(step)
            tensors = difference(*models).tensors

        def are_right() -> None:
            assert f"From step {step} to " in page.locator("main .headline").inner_text()
            rows = opened.rows("tensors differ")
            assert [name for name, *_ in rows] == [one.name for one in tensors[: len(rows)]]
            assert all(agrees(row[1], one.relative) for row, one in zip(rows, tensors, strict=False))

        eventually(are_right)

    has_tensors_since(steps[1])
    page.get_by_role("combobox", name="B").select_option(label=f"step {steps[0]}")
    becomes(lambda: opened.fragment().get("side"), "b")
    assert opened.fragment()["other"]["step"] == steps[0]
    has_tensors_since(steps[0])
    page.get_by_text("All numbers").click()
    page.locator("main table").last.locator("tbody button").first.click()
    becomes(lambda: opened.fragment().get("side"), "diff")
