"""What a teacher shows: the six steps of attention one by one, lines over the sentence, and the page on a projector."""

from functools import partial

import pytest

from tests.explorer.browser.conftest import Open, spot_of
from tests.explorer.browser.numbers import NUMBER, agrees
from tests.explorer.browser.page import becomes, eventually, fragment
from tests.explorer.browser.seeing import SOURCE, TARGET, right
from tests.explorer.browser.test_accessibility import axe, focused, violations  # noqa: F401 (axe is a fixture)
from tests.explorer.browser.test_layout import SIZES, WIDE

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


def test_no_finding_in_steps_and_lines(shared_page: Open, axe: str) -> None:  # noqa: F811
    """axe on every step, on the lines of all heads, and on the projector; nothing is wider than its window."""
    text = "six seven eight nine ten one"
    for state in ({"form": "steps", "step": step} for step in STEPS):
        opened = shared_page(
            "writer", fragment("six seven eight nine ten one", layer=1, head=1, query=4, key=2, **state)
        )
        opened.quiet()
        opened.page.locator(".stage table").first.wait_for()
        assert violations(opened, axe, ("light", "dark")[: 1 + (state["step"] in ("scores", "softmax"))]) == [], state
    for state in ({"form": "lines", "heads": [0, 1]}, {"form": "steps", "step": "weighted", "present": 1}):
        opened = shared_page("translator", fragment(SOURCE, TARGET, stack="decoder", part="cross", layer=1, **state))
        opened.quiet()
        assert violations(opened, axe) == [], state
        for name, size in SIZES.items():
            opened.page.set_viewport_size(size)
            opened.quiet()
            beyond, what = opened.page.evaluate(WIDE)
            assert beyond <= 0, (state, name, what)


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
    assert "looks at" in focused(page)["name"]


def test_present(open_page: Open) -> None:
    """One key hides what is beside the figure, in larger type; the link says so, and Escape brings all back."""
    opened = open_page("writer", fragment("six seven eight nine ten one"))
    page, panels = opened.page, opened.page.locator(".clearhead :is(.top, nav.left, aside.right)")
    sized = "() => document.querySelector('main .crumbs').getBoundingClientRect().height"
    assert panels.count() == 3
    before = page.evaluate(sized)
    opened.press("f")
    becomes(panels.count, 0)
    assert page.evaluate(sized) > before
    becomes(lambda: opened.fragment().get("present"), "1")
    opened.press("]")
    becomes(lambda: opened.fragment().get("head"), "1")
    opened.press("Escape")
    becomes(panels.count, 3)
    becomes(lambda: opened.fragment().get("present"), None)
    page.get_by_role("button", name="Present").click()
    page.get_by_role("button", name="Leave").click()
    becomes(panels.count, 3)
