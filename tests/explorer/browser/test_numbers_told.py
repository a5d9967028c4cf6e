"""What a control edits is what stands beside it, and sentences follow from the numbers."""

from __future__ import annotations

from typing import Any

import pytest

from clearhead import config as c
from clearhead.recipe.tokenizers import Words
from clearhead.text.tokenizers import Tokenizer
from tests.explorer.browser.conftest import Open, Serve
from tests.explorer.browser.numbers import agrees
from tests.explorer.browser.page import becomes, fragment
from tests.explorer.browser.seeing import INPUTS
from tests.explorer.browser.trained import random_model, stack
from tests.explorer.browser.views import show

TEXT, TARGET = INPUTS["translator"]
PLACE: dict[str, Any] = {"stack": "decoder", "part": "cross", "layer": 1, "head": 1, "query": 2, "key": 1}
CROSS = "decoder.blocks.1.cross"


@pytest.mark.parametrize(
    ("step", "at"),
    [
        ("scaled", f"{CROSS}.scores[h=1,t=2,s=1]"),
        ("softmax", f"{CROSS}.weights[h=1,t=2,s=1]"),
        ("weighted", f"{CROSS}.z[h=1,t=2,k=K]"),
    ],
)
def test_this_number_is_the_number_of_the_step(open_page: Open, step: str, at: str) -> None:
    """Of the sum it is the largest component."""
    opened = open_page("translator", fragment(TEXT, TARGET, **PLACE, step=step))
    opened.unfold()
    seen = opened.served.trace(TEXT, TARGET)[0]
    at = at.replace("K", str(int(seen[f"{CROSS}.z[h=1,t=2]"].abs().argmax())))
    becomes(lambda: opened.page.locator(".change code.address").inner_text(), at)
    assert agrees(opened.page.locator("#cell").get_attribute("placeholder") or "", float(seen[at]))


@pytest.mark.parametrize(("step", "at"), [("scores", "scores.product"), ("masked", "masked")])
def test_a_score_before_its_scale_or_behind_the_mask_is_not_edited_by_itself(
    open_page: Open, step: str, at: str
) -> None:
    opened = open_page("translator", fragment(TEXT, TARGET, **PLACE, step=step))
    becomes(lambda: opened.page.locator(".made .what code").inner_text(), f"{CROSS}.{at}[h=1,t=2,s=1]")
    opened.unfold()
    opened.page.get_by_text("This number follows from others").wait_for()
    assert opened.page.locator("#cell").count() == 0


def test_a_weight_of_7_is_no_share(open_page: Open) -> None:
    opened = open_page("translator", fragment(TEXT, TARGET, **PLACE, step="softmax"))
    opened.unfold()
    field = opened.page.locator("#cell")
    field.fill("7")
    field.press("Enter")
    opened.page.get_by_role("alert").get_by_text("between 0 and 1").wait_for()
    assert opened.fragment().get("edits", []) == [], "refused while the row adds up to 1"
    opened.page.get_by_label("keep the row’s sum at 1").uncheck()
    field.fill("7")
    field.press("Enter")
    opened.page.get_by_text("weight 7.000").first.wait_for()
    assert "700 %" not in opened.page.locator("main").inner_text()


def test_both_texts_answer_the_same(open_page: Open) -> None:
    """At the first position both have read the same target; nothing is divided by what is left."""
    state = {"view": "patching", "position": 0, "other": {"text": TEXT, "target": TARGET}}
    opened = open_page("translator", fragment(TEXT, TARGET, **state))
    opened.page.get_by_text("Both texts answer").wait_for()
    assert opened.page.locator(".sweeps table, .sweeps canvas").count() == 0


def test_the_lens_opens_at_the_beginning(open_page: Open, serve: Serve) -> None:
    tokenizer = Tokenizer.train(["six seven eight nine ten one"], Words())
    reads = c.TokenInput(vocab_size=tokenizer.vocab_size)
    config = c.ModelConfig(decoder=stack(input=reads, positions=c.Rotary()))
    opened = open_page(serve("long", random_model(config, tokenizer), text="six seven eight nine ten one " * 10))
    show(opened, "lens")
    here = opened.page.locator("main td.here")
    here.wait_for()
    assert opened.page.locator("main .scroll").first.evaluate("one => one.scrollLeft") == 0
    assert (
        opened.page.locator("main tfoot th.on").inner_text() == opened.page.locator("main tfoot th").nth(1).inner_text()
    )
    opened.page.get_by_label("Positions after").click()
    becomes(lambda: opened.page.get_by_label("Positions before").is_enabled(), True)
