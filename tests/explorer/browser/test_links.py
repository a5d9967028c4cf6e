"""The whole state is in the link; what is cut short or made to do harm does none."""

import base64
import itertools
import json
import re
from typing import Any

import pytest

from tests.explorer.browser.conftest import Open
from tests.explorer.browser.page import Opened, becomes, eventually, fragment, said
from tests.explorer.browser.seeing import SOURCE, TARGET

STATE = {
    "stack": "decoder", "part": "cross", "layer": 1, "head": 1, "query": 2, "key": 1, "step": "scaled",
    "mode": "research", "side": "b", "position": 3, "temperature": 1.5, "dim": 4,
    "edits": [{"at": "encoder.blocks.1.attn.z[h=0]", "do": "zero"}], "change": {"scale": False},
    "other": {"text": "five two nine one", "target": None},
}  # fmt: skip


def test_a_link_brings_the_whole_state_back(open_page: Open) -> None:
    opened = open_page("translator", fragment(SOURCE, TARGET, **STATE))
    opened.quiet()  # Chances at a temperature are asked for after both passes.
    fields, chances, code = opened.fragment(), opened.chances(), opened.code()
    assert {name: fields[name] for name in ("query", "key", "step", "side", "temperature", "edits", "change")} == {
        "query": "2", "key": "1", "step": "scaled", "side": "b", "temperature": 1.5, "edits": STATE["edits"],
        "change": STATE["change"],
    }  # fmt: skip
    tables = eventually(lambda: full(opened))
    opened.page.reload()
    opened.page.locator(".clearhead .page").wait_for()
    opened.settled()
    assert opened.fragment() == fields
    becomes(opened.chances, chances)
    becomes(opened.code, code)
    becomes(lambda: full(opened), tables)
    assert opened.page.get_by_label("Text for the model to read").input_value() == SOURCE
    assert opened.page.get_by_label("Second text, to compare").input_value() == "five two nine one"


PASSES_TAKE_TIME = """() => {
  const ask = window.fetch;
  window.fetch = async (address, question) => {
    if (JSON.parse(question?.body ?? "{}").ask === "run") await new Promise((go) => setTimeout(go, 200));
    return ask(address, question);
  };
}"""


@pytest.mark.parametrize("view", ["attention", "ffn", "geometry"])
def test_nothing_is_asked_of_a_token_that_the_shown_text_lacks(open_page: Open, view: str) -> None:
    """A link, undo and redo lead to a longer text: until its pass is there, the page shows the shorter one."""
    place = {"stack": "decoder", "layer": 1, "view": view}
    opened = open_page("writer", fragment("six seven", None, **place))
    longer = {**place, "step": "softmax", "head": 3, "query": 5, "key": 1, "position": 5}

    opened.page.evaluate(PASSES_TAKE_TIME)
    opened.follow(fragment("six seven eight nine ten one", None, **longer))
    opened.quiet()
    for key in ("u", "r"):
        opened.press(key)
        opened.quiet()
    becomes(lambda: [opened.fragment().get(name) for name in ("query", "key")], ["5", "1"])


def test_a_link_is_followed_though_the_page_writes_its_own_in_between(open_page: Open) -> None:
    """The page writes its link a moment after a click, which may be the moment between a link and its event."""
    opened = open_page("translator", fragment(SOURCE, TARGET, layer=1))
    opened.page.evaluate(
        """(link) => new Promise((done) => {
          const own = location.hash;
          addEventListener("hashchange", () => setTimeout(done), { once: true });
          location.hash = link;
          history.replaceState(null, "", own);
        })""",
        fragment("four nine", "neun vier", layer=0, head=1),
    )
    opened.settled()
    said(opened.page.locator(".ribbon").inner_text, "four")
    becomes(lambda: opened.fragment()["s"], "four nine")


def hostile() -> list[str]:
    """Links cut short, and links that were made to break a page."""
    whole = fragment(SOURCE, TARGET, **STATE)
    cuts = [whole[:n] for n in range(1, len(whole), max(1, len(whole) // 8))]
    odd = {
        "layer": "99", "head": "-3", "query": "1e9", "key": "NaN", "view": "__proto__", "step": "constructor",
        "stack": "toString", "part": "<b>", "side": "c", "mode": "",
    }  # fmt: skip
    single = [fragment(SOURCE, TARGET, **{name: value}) for name, value in odd.items()]
    rests = (
        {"edits": "x"}, {"edits": [1, None]}, {"edits": [{"at": 5, "do": "zero"}]}, {"edits": [{"at": "a", "do": "b"}]},
        {"edits": [{"at": "encoder.blocks.1.attn.z[h=77]", "do": "zero"}]}, {"edits": [{}] * 400}, {"change": 5},
        {"change": {"positions": "<img src=x onerror=__xss()>"}}, {"change": {"scale": "no"}}, {"other": {"text": 5}},
        {"other": {"text": "one", "target": 7}}, {"temperature": -1}, {"temperature": 1e308}, {"temperature": "1"},
        {"position": 1e12}, {"position": -5}, {"position": 0.5}, {"dim": -1}, {"dim": 10**9}, {"dim": 1.5},
        {"image": "data:text/html,<script>__xss()</script>"}, {"step": 10**9}, {"step": "x"},
        {"__proto__": {"polluted": 1}}, [], 5, None, "text",
    )  # fmt: skip
    broken = ["#v=1&e=%%%", "#v=1&e=AAAA", "#v=2", "#", "#v=1&s=%E0%A4%A", "#<script>", f"#v=1&s={'x' * 20_000}"]
    return [*cuts, *single, *(_with(rest) for rest in rests), *broken]


def _with(rest: object) -> str:
    return f"#v=1&s=seven+two&t=zwei+sieben&e={base64.urlsafe_b64encode(json.dumps(rest).encode()).decode()}"


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in (1, 2))])
def test_links_that_are_cut_short_or_hostile(open_page: Open, part: int) -> None:
    """The page opens: without what makes no sense, or with a line that says what is wrong until a text is read."""
    opened = open_page("translator", may_fail=True)
    for i, link in enumerate(itertools.islice(hostile(), part, None, 3)):
        if i % 4 == 0:
            opened.go_to(link)
        else:
            opened.follow(link)
        assert opened.page.locator(".clearhead .page").count() == 1, link[:200]
        assert opened.page.evaluate("[typeof window.__xss, ({}).polluted ?? null]") == ["undefined", None], link[:200]
        assert [one for one in opened.chromium.complaints if one.startswith("uncaught")] == [], link[:200]
        alert = opened.alert
        assert alert is None or (len(alert) < 400 and len(alert.splitlines()) == 1), link[:200]
        if alert is not None and "step" not in alert:
            opened.run("seven two", "zwei sieben")
            becomes(lambda: opened.alert, None)
        if alert is None or "step" not in alert:
            opened.page.locator("main :is(figure, svg, canvas, table, ol, .gap)").first.wait_for()


def full(opened: Opened) -> dict[str, list[str]]:
    tables = {label: list(table.cells.values()) for label, table in opened.figures().items()}
    assert {"Q", "K", "V", "Y", "Scaled"} <= tables.keys()
    return tables


@pytest.mark.parametrize(
    ("view", "sentence"),
    [
        ("image", "train mnist"),
        ("vector", "MiniLM"),
        ("training", "clearhead demo"),
        ("features", "--features"),
        ("difference", "--compare"),
    ],
)
def test_a_link_to_a_place_that_the_model_does_not_have_says_so(shared_page: Open, view: str, sentence: str) -> None:
    opened = shared_page("translator", fragment(SOURCE, TARGET, view=view))
    becomes(lambda: [sentence in text for text in opened.page.locator("main p > code").all_inner_texts()], [True])
    becomes(lambda: opened.page.locator("main .example figure").count() > 1, True)
    assert not re.search(r"\{\w\}|gap\.|MODEL", opened.page.locator("main").inner_text())


def test_cross_attention_of_a_model_without_it_is_said(open_page: Open) -> None:
    opened = open_page("writer", fragment("six seven eight", view="attention", part="cross", head=0))
    note = opened.page.locator("main .why", has_text="no cross-attention")
    note.wait_for()
    assert opened.page.locator("main h2").inner_text().lower() == "cross-attention"
    assert opened.page.locator("nav.left [aria-current]").count() == 0
    opened.go_to(fragment("six seven eight", view="embedding"))
    becomes(note.count, 0)


def test_a_place_that_fails_says_so_and_can_be_drawn_again(open_page: Open) -> None:
    """The script of the page draws one place wrongly."""

    def broken(route: Any) -> None:
        script = route.fetch().text()
        told = re.compile("[`'\"]scale\\.told[`'\"]")
        assert told.search(script)
        bad = told.sub("(globalThis.failing?undefined.x:`scale.told`)", script)
        route.fulfill(body=bad, content_type="text/javascript")

    opened = open_page("writer", fragment("six seven eight", view="embedding"))
    opened.page.route("**/explorer.js", broken)
    opened.page.reload()
    opened.page.locator(".clearhead .page").wait_for()
    opened.page.evaluate("() => (globalThis.failing = true)")
    opened.page.get_by_role("button", name="Why √dₖ").click()
    opened.page.locator("main .gap", has_text="This place could not be drawn").wait_for()
    opened.page.evaluate("() => (globalThis.failing = false)")
    opened.button("Try again", "main").click()
    opened.page.locator("main .headline", has_text="√dₖ").wait_for()
    assert len(opened.chromium.complaints) == 1
    opened.chromium.complaints.clear()
