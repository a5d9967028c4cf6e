"""Learn: the walk along a model by the keyboard, its numbers against Python's, axe, a phone; a chain in a file."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from clearhead.explorer.session import Session
from clearhead_lab.app import walk
from clearhead_lab.walks import chains
from tests.explorer.browser.checks import WIDE, focused, violations
from tests.explorer.browser.conftest import Open
from tests.explorer.browser.numbers import agrees
from tests.explorer.browser.page import Opened, becomes, eventually, fragment, said
from tests.explorer.browser.seeing import SOURCE, TARGET

N_STOPS = 18
CHECKED = {"Softmax", "One head off"}
"""The stops that axe looks at."""


def heading(opened: Opened) -> str:
    return opened.page.locator("#walk").inner_text()


def numbers_of(opened: Opened) -> list[dict[str, str]]:
    """Each number of the sentence: its text, its address, and what is made of the values there."""
    return opened.page.locator(".sentence b[data-at]").evaluate_all(
        "all => all.map((one) => ({ text: one.textContent, at: one.dataset.at, take: one.dataset.take ?? '' }))"
    )


def python_says(trace: Any, logits: Any, at: str, take: str) -> float:
    path, _, index = at.partition("[")
    if path.endswith(".product"):
        head, t, s = (int(part.split("=")[1]) for part in index.rstrip("]").split(","))
        block = path.removesuffix(".scores.product")
        return float(trace[f"{block}.q"][0, head, t] @ trace[f"{block}.k"][0, head, s])
    if take == "chance":
        return float(logits[int(index.rstrip("]").removeprefix("t="))].softmax(-1).max())
    value = trace[at][0].double()
    made = {"length": value.norm, "active": lambda: (value > 0).double().mean()}
    return float(made[take]() if take else value)


def busiest_is_off(opened: Opened, weights: Any) -> None:
    """The head that gives another word the largest share of the query's attention; the link is written late."""
    fields = opened.fragment()
    query = int(fields.get("query", 0))
    others = [key for key in range(1, weights.shape[-1]) if key != query]
    head = int(weights[:, query, others].amax(1).argmax())
    assert fields.get("edits") == [{"at": f"decoder.blocks.0.attn.z[h={head}]", "do": "zero"}]


def test_a_walk_along_a_model_by_the_keyboard(open_page: Open) -> None:
    """Every number that a sentence shows is Python's, whatever the model."""
    opened = open_page("translator", fragment(SOURCE, TARGET))
    trace, logits = opened.served.trace(SOURCE, TARGET)
    opened.button("Learn").focus()
    opened.press("Enter")
    seen = 0
    for i in range(N_STOPS):
        becomes(opened.page.locator(".progress").inner_text, f"{i + 1} of {N_STOPS}")
        opened.quiet()
        title = heading(opened)
        if title.endswith("One head off"):
            eventually(partial(busiest_is_off, opened, trace["decoder.blocks.0.attn.weights"][0]))
        else:
            seen += eventually(partial(check_numbers, opened, trace, logits))
        if any(title.endswith(name) for name in CHECKED):
            assert violations(opened.page) == [], title
        opened.press("n")
    assert seen > 10
    opened.press("N", "N")
    becomes(opened.page.locator(".progress").inner_text, f"{N_STOPS - 2} of {N_STOPS}")
    button = opened.page.locator(".choices button").first
    button.focus()
    assert focused(opened.page)["seen"]
    opened.press("Enter")
    said(opened.page.locator(".check").inner_text, "It goes from")
    opened.button("Leave").click()
    assert opened.page.locator(".walk, .walk-bar").count() == 0
    becomes(lambda: opened.fragment().get("mode"), None)


def check_numbers(opened: Opened, trace: Any, logits: Any) -> int:
    """How many numbers the sentence shows; every one must be right."""
    assert opened.page.locator(".sentence").inner_text().strip()
    found = numbers_of(opened)
    for one in found:
        text, value = one["text"], python_says(trace, logits, one["at"], one["take"])
        assert agrees(text, value), (one, value)
    return len(found)


def test_a_stop_on_a_phone_and_away_from_it(open_page: Open) -> None:
    """A link that names a stop goes there; nothing scrolls sideways; another place has a way back."""
    opened = open_page("translator", fragment(SOURCE, TARGET, mode="learn", walk="word", stop=6),
                       viewport={"width": 390, "height": 800})  # fmt: skip
    said(opened.page.locator(".sentence").inner_text, "of its attention on")
    becomes(lambda: opened.fragment().get("view", "attention"), "attention")
    becomes(lambda: opened.fragment().get("query"), "3")
    opened.quiet()
    assert opened.page.evaluate(WIDE) == [0, []]
    bar = opened.page.locator(".walk-bar").bounding_box()
    assert bar is not None
    assert bar["y"] + bar["height"] <= 800, "the way on is always in sight"
    opened.step("Embedding")
    opened.button("Back to the stop").click()
    becomes(opened.page.get_by_text("You look at another place").count, 0)
    opened.run("four nine", "neun vier")
    said(opened.page.locator(".sentence").inner_text, "“nine” spends")


def test_a_chain_of_the_documents_in_a_file(open_file: Open, tmp_path: Path) -> None:
    """It opens at its walk without a network; what is printed stands beside what the page computes."""
    path = tmp_path / "apple.html"
    walk("apple", export=path)
    chain = chains()["apple"]
    session = Session(chain.model(), name="apple", text=chain.text, walks=chain.documents())
    opened: Any = open_file(session, path)
    becomes(partial(heading, opened), "1 Text → tokens")
    for _ in range(3):
        opened.press("n")
    becomes(partial(heading, opened), "4 Keys")
    theirs, ours = (eventually(partial(table, opened, caption)) for caption in ("Printed", "Computed here"))
    assert theirs[0] == [1.2, 0.6]
    keys = session.model.trace(chain.text)[0]["encoder.blocks.0.attn.k"][0, 0]
    assert all(abs(a - float(b)) < 1e-5 for row, right in zip(ours, keys, strict=True)
               for a, b in zip(row, right, strict=True))  # fmt: skip
    assert violations(opened.page) == []
    opened.page.get_by_label("Walk", exact=True).select_option("apple-as-printed")
    becomes(partial(heading, opened), "1 Queries")
    becomes(lambda: json.dumps(opened.fragment().get("edits")).count("set"), 8)


def table(opened: Opened, caption: str) -> list[list[float]]:
    """The numbers of a printed table, in full."""
    found = opened.page.locator(".printed table").evaluate_all(
        """(all, name) => all.filter((one) => one.caption.textContent === name).map((one) =>
          [...one.rows].map((row) => [...row.querySelectorAll("td")].map((cell) => Number(cell.dataset.value))))""",
        caption,
    )
    assert found
    return found[0]
