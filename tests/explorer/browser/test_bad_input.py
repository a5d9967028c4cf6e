"""Whatever is typed or linked to: a clear message in the page, nothing executed, nothing lost."""

import base64
import itertools
import json
import secrets
import threading
from pathlib import Path

import pytest
import torch

from clearhead import config as c
from clearhead.api import Model
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import UserError
from clearhead.explorer.serving import listen, serving
from clearhead.explorer.session import Session
from clearhead.model import Transformer
from clearhead.recipe.data import Words
from tests.explorer.browser.conftest import Open, Serve
from tests.explorer.browser.page import Opened, Served, eventually, fragment
from tests.explorer.browser.trained import MOST, stack
from tests.explorer.browser.views import VIEWS, show

SOURCE, TARGET = "seven two nine one", "eins neun zwei sieben"
TEXT = "six seven eight nine ten one"


def random_model(config: c.ModelConfig, tokenizer: Tokenizer | None) -> Model:
    torch.manual_seed(0)
    network = Transformer(config)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return Model(network.eval(), tokenizer)


# --- texts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["writer", "filler"])
def test_a_text_that_is_too_long(open_page: Open, name: str) -> None:
    """The message says the limit; what was there stays, and the next text is read."""
    opened = open_page(name, fragment(TEXT), may_fail=True)
    before = opened.chances()
    opened.run(" ".join(["one"] * (MOST + 1)))
    alert = eventually(lambda: some(opened.alert))
    assert str(MOST) in alert
    assert str(MOST + 1) in alert
    assert opened.chances() == before
    assert opened.page.locator(".ribbon .chip").count() >= 6
    opened.run("two three")
    eventually(lambda: equal(opened.alert, None))
    assert opened.page.locator(".ribbon .chips b").all_inner_texts() == ["▁two", "▁three"]


def test_a_text_that_is_too_long_in_a_link(open_page: Open) -> None:
    """The page opens, says what is wrong, and takes another text."""
    opened = open_page("writer", fragment(" ".join(["one"] * (MOST + 1))), may_fail=True)
    assert str(MOST) in (opened.alert or "")
    opened.run("two three")
    eventually(lambda: equal(opened.alert, None))
    assert opened.page.locator(".ribbon .chips b").all_inner_texts() == ["▁two", "▁three"]


@pytest.mark.parametrize("name", ["translator", "writer", "filler"])
def test_words_without_a_token(open_page: Open, name: str) -> None:
    opened = open_page(name)
    opened.run("one zorblax three ☃")
    note = eventually(lambda: some(opened.page.locator("main .note").first.inner_text()))
    assert "zorblax" in note
    assert "☃" in note
    assert opened.alert is None


@pytest.mark.parametrize("text", ["", "   ", "\u200b"])
@pytest.mark.parametrize("name", ["translator", "writer", "filler"])
def test_an_empty_text(open_page: Open, name: str, text: str) -> None:
    """A message, or a pass over the marks alone; every view stands it."""
    opened = open_page(name, fragment(TEXT), may_fail=True)
    opened.run(text)
    assert opened.alert is None or len(opened.alert.splitlines()) == 1
    for view in ("tokens", "embedding", "attention", "logits", "heads"):
        show(opened, view)
        assert opened.page.locator("main").inner_text().strip()
    opened.run("two three")
    eventually(lambda: equal(opened.alert, None))


def test_a_model_without_a_tokenizer(open_page: Open, serve: Serve) -> None:
    """Texts are ids; what is none is told."""
    config = c.ModelConfig(decoder=stack())
    opened = open_page(serve("bare", random_model(config, None)), fragment("5 17 3"), may_fail=True)
    assert opened.page.locator(".ribbon .chips b").all_inner_texts() == ["5", "17", "3"]
    assert "no tokenizer" in opened.page.locator("main .note").first.inner_text()
    for text in ("one two", "5 17 99999", ""):
        opened.run(text)
        assert len(eventually(lambda: some(opened.alert)).splitlines()) == 1
        opened.run("5 17 3")
        eventually(lambda: equal(opened.alert, None))
    for view in VIEWS:
        if view not in ("image", "training"):
            show(opened, view)
            assert opened.alert is None, view


# --- hosts that fail --------------------------------------------------------------------------------------------


def test_the_server_goes_and_comes_back(open_page: Open, serve: Serve) -> None:
    """A message while it is away; then the page works on, in the state that it was in."""
    known = serve("writer")
    listener = listen()
    port = listener.getsockname()[1]
    with serving(known.session, listener) as server:
        opened = open_page(Served(known.model, known.session, server), fragment(TEXT, layer=1), may_fail=True)
        before = opened.chances()
        token = server.token
    opened.button("off", ".change").click()
    opened.settled()
    alert = eventually(lambda: some(opened.alert))
    assert "Failed to fetch" not in alert, "the browser's words, which say nothing to a reader"
    assert opened.chances()[0][:2] == before[0][:2]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "token_urlsafe", lambda _: token)
        with serving(known.session, listen(port)):
            opened.button("mean", ".change").click()
            opened.settled()
            eventually(lambda: equal(opened.alert, None))
            opened.page.get_by_test_id("moved").wait_for()


class Faulty:
    """A session of which one kind of question fails."""

    def __init__(self, session: Session, ask: str, error: Exception) -> None:
        self.session, self.ask, self.error, self.failing = session, ask, error, threading.Event()

    def answer(self, question):  # noqa: ANN001, ANN201
        if self.failing.is_set() and question["ask"] == self.ask:
            raise self.error
        return self.session.answer(question)


@pytest.mark.parametrize(
    ("ask", "view"),
    [("values", "attention"), ("values", "residual"), ("lens", "lens"), ("effects", "heads"), ("statistics", "heads"),
     ("neighbours", "embedding"), ("generate", "generation"), ("tokenize", "tokens"), ("attribution", "logits"),
     ("weights", "embedding"), ("check", "attention")],
)  # fmt: skip
def test_a_question_that_fails(open_page: Open, serve: Serve, ask: str, view: str) -> None:
    """A labelled gap with the reason; the rest of the page goes on."""
    known = serve("writer")
    faulty = Faulty(known.session, ask, UserError("this is why"))
    with serving(faulty) as server:
        faulty.failing.set()
        opened = open_page(Served(known.model, known.session, server), fragment(TEXT, mode="research"), may_fail=True)
        show(opened, view)
        if ask == "generate":
            opened.page.locator("main").get_by_role("button", name="Write").click()
        if ask != "check":
            eventually(lambda: contains(opened.page.locator("main").inner_text(), "this is why"))
        assert len(opened.chances()) == 5
        faulty.failing.clear()
        opened.step("Logits → word")
        show(opened, view)
        opened.is_clean()


# --- links ------------------------------------------------------------------------------------------------------

STATE = {
    "stack": "decoder", "part": "cross", "layer": 1, "head": 1, "query": 2, "key": 1, "view": "attention", "step": "scaled",
    "mode": "research", "side": "b", "position": 3, "temperature": 1.5, "dim": 4,
    "edits": [{"at": "encoder.blocks.1.attn.z[h=0]", "do": "zero"}], "change": {"scale": False},
    "other": {"text": "five two nine one", "target": None},
}  # fmt: skip


def test_a_link_brings_the_whole_state_back(open_page: Open) -> None:
    opened = open_page("translator", fragment(SOURCE, TARGET, **STATE))
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
    eventually(lambda: equal(opened.chances(), chances))
    eventually(lambda: equal(opened.code(), code))
    eventually(lambda: equal(full(opened), tables))
    assert opened.page.get_by_label("Text for the model to read").input_value() == SOURCE
    assert opened.page.get_by_label("Second text, to compare").input_value() == "five two nine one"


def test_a_link_in_the_address_bar_of_an_open_page(open_page: Open) -> None:
    """It is followed, though the browser loads nothing."""
    opened = open_page("translator", fragment(SOURCE, TARGET, layer=1))
    link = fragment("four nine", "neun vier", layer=0, head=1)
    opened.page.evaluate("(link) => { location.hash = link; }", link)
    eventually(lambda: contains(opened.page.locator(".ribbon").inner_text(), "four"))
    opened.settled()
    eventually(lambda: contains(opened.page.locator("main h2").inner_text(), "Head 1"))


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


@pytest.mark.parametrize("part", range(2))
def test_links_that_are_cut_short_or_hostile(open_page: Open, part: int) -> None:
    """The page opens: without what makes no sense, or with a line that says what is wrong, and a way back."""
    opened = open_page("translator", may_fail=True)
    for link in itertools.islice(hostile(), part, None, 2):
        opened.go_to(link)
        assert opened.page.locator(".clearhead .page").count() == 1, link[:200]
        assert opened.page.evaluate("[typeof window.__xss, ({}).polluted ?? null]") == ["undefined", None], link[:200]
        assert [one for one in opened.chromium.complaints if one.startswith("uncaught")] == [], link[:200]
        alert = opened.alert
        assert alert is None or (len(alert) < 400 and len(alert.splitlines()) == 1), link[:200]
        if alert is not None and "step" not in alert:
            for way_back in ("reset", "− compare"):
                button = opened.button(way_back)
                if button.count() and button.is_enabled():
                    button.click()
            opened.settled()
            eventually(lambda: equal(opened.alert, None))
        if alert is None or "step" not in alert:
            assert len(opened.chances()) >= 5, link[:200]


# --- scripts in texts -------------------------------------------------------------------------------------------


def scripts() -> list[str]:
    """200 texts that run `__xss` where a page takes them for more than text."""
    call = "window.__xss=1"
    elements = [
        *(f"<{tag} {event}={call}>" for tag in ("img src=x", "svg", "body", "video src=x", "details open", "input autofocus")
          for event in ("onerror", "onload", "onfocus", "ontoggle", "onmouseover", "onanimationstart")),
        *(f"<{name}>{call}</{name}>" for name in ("script", "SCRIPT", "ScRiPt", "script/x", "script\t", "svg><script")),
        *(f"<{tag} {link}=javascript:{call}>x</{tag}>" for tag, link in (
            ("a", "href"), ("iframe", "src"), ("form", "action"), ("object", "data"), ("embed", "src"), ("math", "href"),
            ("button", "formaction"), ("link rel=stylesheet", "href"))),
        f'<iframe srcdoc="<script>parent.{call}</script>">', f"<style>@import 'javascript:{call}';</style>",
        f"<meta http-equiv=refresh content='0;url=javascript:{call}'>", f"<base href='javascript:{call}//'>",
        f"<template><script>{call}</script></template>", f"<noscript><img src=x onerror={call}></noscript>",
        f"<textarea autofocus onfocus={call}>", f"<marquee onstart={call}>", f"<x contenteditable onblur={call}>",
    ]  # fmt: skip
    around = ["{}", '">{}', "'>{}", "</script>{}", "</style></title>{}", "-->{}", "]]>{}", "{}{{7*7}}${{7*7}}"]
    made = [form.format(element) for form in around for element in elements]
    others = [
        f"javascript:{call}", f"{{{{constructor.constructor('{call}')()}}}}", f"${{{call}}}", f"`;{call};`", f"';{call};'",
        "\u2028alert(1)", "\x00<script>", "%3Cscript%3E", "&lt;script&gt;", "&#60;script&#62;", "__proto__", "constructor",
        "</pre></code><script>", "style=background:url(javascript:1)", "{@html x}", "\u202egnirts desrever",
    ]  # fmt: skip
    return [*others, *made][:: max(1, len(made) // 184)][:200]


def watched(opened: Opened) -> list[str]:
    """Every dialog from now on."""
    dialogs: list[str] = []

    def shown(dialog) -> None:  # noqa: ANN001
        dialogs.append(dialog.message)
        dialog.dismiss()

    opened.page.on("dialog", shown)
    return dialogs


def is_harmless(opened: Opened, dialogs: list[str]) -> None:
    assert dialogs == []
    assert opened.page.evaluate("typeof window.__xss") == "undefined"
    assert opened.page.locator(".clearhead :is(script, iframe, object, embed, base, meta, marquee, video, img[src=x])").count() == 0
    opened.is_clean()


def test_there_are_200_of_them() -> None:
    assert len(set(scripts())) == 200


def test_scripts_as_texts(open_page: Open) -> None:
    """Typed: each is read as words, and shown as text."""
    opened = open_page("translator", fragment(SOURCE, TARGET, mode="research", view="tokens"), may_fail=True)
    dialogs = watched(opened)
    field = opened.page.get_by_label("Text for the model to read")
    for i, text in enumerate(scripts()):
        field.fill(text)
        field.press("Enter")
        if i % 20 == 0:
            opened.settled()
            eventually(lambda: equal(opened.fragment()["s"], text))
    opened.settled()
    show(opened, "attention")
    is_harmless(opened, dialogs)


@pytest.mark.parametrize("view", ["attention", "tokens", "embedding", "heads", "logits", "lens", "geometry", "residual"])
def test_scripts_as_names_of_tokens(open_page: Open, serve: Serve, view: str) -> None:
    """A vocabulary of nothing else: in the text, among the likeliest, in every label and title."""
    pieces = scripts()
    tokenizer = Tokenizer.train([" ".join(pieces)] * 2, Words(vocab_size=2000))
    config = c.ModelConfig(decoder=stack(input=c.TokenInput(vocab_size=tokenizer.vocab_size)))
    served = serve("scripts", random_model(config, tokenizer), text=" ".join(pieces[20:26]))
    opened = open_page(served)
    dialogs = watched(opened)
    show(opened, view)
    assert "<" in opened.page.locator(".ribbon").inner_text()
    is_harmless(opened, dialogs)


def test_scripts_as_names_of_labels(open_page: Open, serve: Serve, tmp_path: Path) -> None:
    pieces = scripts()
    config = c.ModelConfig(
        encoder=stack(input=c.TokenInput(vocab_size=40)),
        head=c.ClassificationHead(n_labels=len(pieces), labels=tuple(pieces)),
    )
    tokenizer = Tokenizer.train(["one two three"], Words())
    opened = open_page(serve("<img src=x onerror=window.__xss=1>", random_model(config, tokenizer), text="one two three"))
    dialogs = watched(opened)
    for view in ("attention", "logits", "heads"):
        show(opened, view)
    assert len(opened.chances()) == 5
    assert {word for word, *_ in opened.chances()} <= set(pieces)
    is_harmless(opened, dialogs)


def some(text: str | None) -> str:
    assert text
    return text


def equal(got: object, wanted: object) -> None:
    assert got == wanted


def contains(text: str, part: str) -> None:
    assert part in text


def full(opened: Opened) -> dict[str, list[str]]:
    tables = {label: list(table.cells.values()) for label, table in opened.figures().items()}
    assert {"Q", "K", "V", "Y", "Scaled"} <= tables.keys()
    return tables
