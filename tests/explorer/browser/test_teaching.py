"""What a teacher shows: the six steps of attention one by one, lines over the sentence, and the page on a projector."""

from functools import partial
from typing import Any

import pytest

from tests.explorer.browser.checks import fits, focused, violations
from tests.explorer.browser.conftest import Open, spot_of
from tests.explorer.browser.numbers import NUMBER, agrees
from tests.explorer.browser.page import becomes, eventually, fragment
from tests.explorer.browser.seeing import INPUTS, SOURCE, TARGET, right

STEPS = ("qkv", "scores", "scaled", "masked", "softmax", "weighted")
LINES = """(tables) => tables.flatMap((table) => [...table.tBodies[0].rows].map((row) =>
  [row.cells[0].textContent, [...row.cells].slice(1).map((cell) => cell.textContent.trim()).filter(Boolean)]))"""


@pytest.mark.parametrize("name", ["translator", "writer", "filler"])
def test_six_steps(see, name: str) -> None:
    """Each step has Python's numbers, and `.` goes on to the next."""
    key = 1
    spot = spot_of(see, name, form="steps", step="qkv", head=1, key=key, dim=0)
    page, at, t = spot.seen.opened, spot.at, spot.t
    value = {one: spot.seen.trace[f"{at}.{one}"][0, 1].double() for one in ("q", "k", "v", "scores", "weights", "z")}
    product = value["q"][t] * value["k"][key]
    row = value["scores"][t]
    closed = [s for s in range(len(row)) if name == "writer" and s > t]
    open_row = row.clone()
    open_row[closed] = -float("inf")
    powers = (open_row - open_row.max()).exp()

    def lines() -> dict[str, list[str]]:
        return dict(page.page.locator(".stage table").evaluate_all(LINES))

    def are(texts: list[str], wanted: list[float]) -> None:
        assert len(texts) == len(wanted), (texts, wanted)
        for text, number in zip(texts, wanted, strict=True):
            found = "−inf" if text == "−∞" else NUMBER.search(text)
            assert found == "−inf" if number == -float("inf") else found and agrees(found[0], number), (text, number)

    def of(symbol: str) -> list[str]:
        found = [cells for name, cells in lines().items() if name.startswith(symbol)]
        assert found, symbol
        return found[0]

    def sums(symbol: str, terms: list[float]) -> None:
        are(of(symbol), [*terms, sum(terms)])

    checks = {
        "qkv": lambda: right(of("x · w")[-1].removeprefix("Σ "), value["q"][t, 0]),
        "scores": lambda: sums("q · k", product.tolist()),
        "scaled": lambda: are(of("÷ √dₖ"), row.tolist()),
        "masked": lambda: are(of("="), open_row.tolist()),
        "softmax": lambda: (sums("exp", powers.tolist()), are(of("a"), [*value["weights"][t].tolist(), 1.0])),
        "weighted": lambda: sums("a · v", (value["weights"][t] * value["v"][:, 0]).tolist()),
    }
    for i, step in enumerate(STEPS):
        becomes(partial(page.page.locator(".six button").nth(i).get_attribute, "aria-current"), "step")
        eventually(checks[step])
        if i + 1 < len(STEPS):
            page.press(".")


def test_moments_of_a_vector(see) -> None:
    """One number at a time on a token's way: each that is said is Python's."""
    unit, word = 3, 1
    spot = spot_of(see, "writer", view="norm", form="steps", dim=0)
    page, logits = spot.seen.opened, spot.seen.logits.double()
    said = page.page.locator(".stage .said b").last
    norm = [spot.of(f"attn_norm.{name}")[0] for name in ("mean", "rstd", "out")]
    stream = [spot.of("resid_attn")[0]]
    ffn = [*(spot.of(f"ffn.{name}")[unit] for name in ("pre", "post")), spot.of("ffn.out")[unit]]
    state = spot.seen.trace["decoder.final_norm.out"][0, word, 0]
    for view, dim, wanted in (("norm", 0, [*norm, *stream]), ("ffn", unit, ffn), ("logits", 0, [state])):
        page.follow(fragment(*INPUTS["writer"], view=view, form="steps", query=spot.t, dim=dim, position=word))
        for i, value in enumerate(wanted):
            becomes(partial(page.page.locator(".six button").nth(i).get_attribute, "aria-current"), "step")
            if value is not None:
                eventually(lambda value=value: right(said.inner_text(), value))
            page.press(".")
    becomes(page.page.locator(".six [aria-current]").inner_text, "2\n· W")
    eventually(lambda: right(said.inner_text(), logits[word].max()))
    page.press(".")
    share = logits[word].softmax(-1).max()
    eventually(lambda: right(said.inner_text(), share))
    page.press("m")
    becomes(lambda: page.fragment().get("form"), None)


def test_no_finding_in_steps_and_lines(shared_page: Open) -> None:
    """axe on the steps, on the lines of all heads, and on the projector; nothing is wider than its window."""
    of_writer: list[dict[str, Any]] = [{"step": step} for step in STEPS] + [{"view": "norm", "moment": 2}]
    for state in of_writer:
        opened = shared_page(
            "writer", fragment("six seven eight nine ten one", head=1, query=4, key=2, form="steps", **state)
        )
        opened.quiet()
        opened.page.locator(".stage :is(table, dl)").first.wait_for()
        assert violations(opened.page, ("light",)) == [], state
    others: list[dict[str, Any]] = [{"form": "lines", "heads": [0, 1]}, {"form": "steps", "present": 1}]
    for state in others:
        opened = shared_page("translator", fragment(SOURCE, TARGET, stack="decoder", part="cross", layer=1, **state))
        opened.quiet()
        assert violations(opened.page) == [], state
        fits(opened.page, "phone", "zoomed to 200 %")


def test_lines_over_the_sentence(see) -> None:
    """They lead from the query to its keys, the words are one Tab stop, and heads are added to the picture."""
    spot = spot_of(see, "translator", form="lines", head=0, key=1)
    page, weights = spot.seen.opened, spot.seen.trace[f"{spot.at}.weights"][0].double()
    words = page.page.locator("main .sheet button")
    sources = weights.shape[-1]

    def titles() -> list[str]:
        return page.page.locator("main path.on title").all_text_contents()

    def drawn(heads: list[int]) -> None:
        found = titles()
        assert len(found) == len(heads) * sources
        for head in heads:
            own = [one for one in found if f"ead {head})" in one]
            for text, weight in zip(reversed(own), weights[head, spot.t].sort(descending=True).values, strict=True):
                right(text.rpartition(": ")[2], weight)

    eventually(partial(drawn, [0]))
    page.page.locator("main .heads button", has_text="1").first.click()
    eventually(partial(drawn, [0, 1]))
    becomes(lambda: page.fragment().get("heads"), [0, 1])
    words.nth(sources + spot.t).focus()
    page.press("ArrowRight", "Enter")
    becomes(lambda: page.fragment().get("query"), str(spot.t + 1))
    assert page.page.locator("main .sheet button[tabindex='0']").count() == 1
    assert "looks at" in focused(page.page)["name"]


def test_present(open_page: Open) -> None:
    """One key leaves the figure and its controls, in larger type; the link says so, and Escape brings all back."""
    opened = open_page("writer", fragment("six seven eight nine ten one", layer=1))
    page, panels = opened.page, opened.page.locator(".clearhead :is(.top, nav.left)")
    sized = "() => document.querySelector('main .heading').getBoundingClientRect().height"
    assert panels.count() == 2
    before = page.evaluate(sized)
    opened.press("f")
    becomes(panels.count, 0)
    assert page.locator("aside.right .change").is_visible()
    assert page.evaluate(sized) > before
    becomes(lambda: opened.fragment().get("present"), "1")
    opened.press("]")
    becomes(lambda: opened.fragment().get("head"), "1")
    opened.press("Escape")
    becomes(panels.count, 2)
    becomes(lambda: opened.fragment().get("present"), None)
    opened.menu("Present: for a projector")
    page.get_by_role("button", name="Leave").click()
    becomes(panels.count, 2)
