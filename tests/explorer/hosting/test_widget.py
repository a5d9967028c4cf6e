"""`model.explore` from Python: which kind it opens, and the messages of a notebook. test_notebooks.py has the real."""

import http.client
import queue
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from pydantic import JsonValue

from clearhead.api import Model
from clearhead.errors import UserError
from clearhead.explorer.hosting import widget as module
from clearhead.explorer.hosting.widget import ExplorerInBrowser, Messages, in_notebook
from clearhead.explorer.session import Session
from tests import processes
from tests.conftest import ROOT
from tests.explorer import traced
from tests.explorer.asking import ask as questions
from tests.small_models import PAIRS, model_of

Sent = tuple[dict[str, JsonValue], list[bytes]]


class Slow:
    """A session that answers `wait` when it is told to."""

    def __init__(self) -> None:
        self.go, self.asked = threading.Event(), queue.Queue[str]()

    def answer(self, question: Mapping[str, JsonValue]) -> bytes:
        ask = str(question["ask"])
        self.asked.put(ask)
        if ask == "wait":
            assert self.go.wait(20)
        if ask == "bug":
            raise ZeroDivisionError
        if ask == "wrong":
            raise UserError("ask: expected another")
        if ask == "memory":
            raise MemoryError
        return ask.encode()


@pytest.fixture
def slow() -> Iterator[Slow]:
    session = Slow()
    yield session
    session.go.set()


@pytest.fixture
def sent() -> "queue.Queue[Sent]":
    return queue.Queue()


@pytest.fixture
def messages(slow: Slow, sent: "queue.Queue[Sent]") -> Messages:
    return Messages(slow, lambda message, buffers: sent.put((message, buffers)))


def ask(messages: Messages, number: int, what: str) -> None:
    messages.receive(None, {"id": number, "question": {"ask": what}}, [])


@pytest.fixture(scope="module")
def model() -> Model:
    return model_of("demo")


@pytest.fixture(autouse=True)
def _built(monkeypatch) -> None:
    """The page as built, whether or not it is."""
    monkeypatch.setattr(module, "static_file", lambda name: f"/* {name} */\n".encode())
    monkeypatch.setattr(module, "check_built", lambda: None)


# --- messages ---


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("wrong", "ask: expected another"),
        ("memory", "out of memory; try a shorter text"),
        ("bug", "internal error; the notebook's output or log shows where"),
    ],
)
def test_an_error_is_a_line(messages: Messages, sent: "queue.Queue[Sent]", caplog, what: str, error: str):
    ask(messages, 1, what)
    assert sent.get(timeout=10) == ({"id": 1, "error": error}, [])
    assert ("ZeroDivisionError" in caplog.text) == (what == "bug")


def test_a_long_answer_holds_up_neither_the_kernel_nor_others(
    messages: Messages, slow: Slow, sent: "queue.Queue[Sent]"
):
    ask(messages, 1, "wait")
    ask(messages, 2, "short")
    assert sent.get(timeout=10) == ({"id": 2}, [b"short"])
    slow.go.set()
    assert sent.get(timeout=10) == ({"id": 1}, [b"wait"])


@pytest.mark.parametrize("by_closing", [False, True])
def test_what_nobody_waits_for_is_neither_asked_nor_sent(
    messages: Messages, slow: Slow, sent: "queue.Queue[Sent]", by_closing: bool
):
    for number in range(module.AT_ONCE):
        ask(messages, number, "wait")
    for _ in range(module.AT_ONCE):
        slow.asked.get(timeout=10)
    ask(messages, 100, "queued")
    if by_closing:
        messages.close()
    else:
        for number in (*range(module.AT_ONCE), 100):
            messages.receive(None, {"id": number, "cancel": True}, [])
    slow.go.set()
    ask(messages, 101, "last")
    assert sent.get(timeout=10) == ({"id": 101}, [b"last"])
    assert slow.asked.get(timeout=10) == "last"
    assert sent.empty()
    assert slow.asked.empty()


@pytest.mark.parametrize("message", [{}, {"id": "1", "question": {}}, {"id": 1}, {"id": 1, "question": 3}, [], None])
def test_what_is_no_message_is_not_answered(messages: Messages, sent: "queue.Queue[Sent]", caplog, message: Any):
    messages.receive(None, message, [])
    ask(messages, 2, "next")
    assert sent.get(timeout=10) == ({"id": 2}, [b"next"])
    assert "a message that it does not know" in caplog.text


# --- which kind ---


@pytest.mark.parametrize(
    ("module_name", "inside", "expected"),
    [
        ("IPython", {"get_ipython": lambda: SimpleNamespace(kernel=object())}, True),
        ("IPython", {"get_ipython": SimpleNamespace}, False),
        ("IPython", {"get_ipython": lambda: None}, False),
        ("marimo", {"running_in_notebook": lambda: True}, True),
        ("marimo", {"running_in_notebook": lambda: False}, False),
        ("neither", {}, False),
    ],
)
def test_in_notebook(monkeypatch, module_name: str, inside: dict[str, Any], expected: bool):
    for name in ("IPython", "marimo"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, module_name, SimpleNamespace(**inside))
    assert in_notebook() is expected


@pytest.fixture
def _notebook(monkeypatch) -> None:
    monkeypatch.setattr(module, "in_notebook", lambda: True)


@pytest.mark.usefixtures("_notebook")
def test_a_widget_carries_the_page_and_keeps_no_answer(model: Model, monkeypatch, sent: "queue.Queue[Sent]"):
    anywidget = pytest.importorskip("anywidget")
    monkeypatch.setattr(anywidget.AnyWidget, "send", lambda _, message, buffers: sent.put((message, buffers)))
    shown = model.explore(PAIRS.source[0])
    assert isinstance(shown, anywidget.AnyWidget)
    assert (shown._esm, shown._css) == ("/* explorer.js */\n", "/* explorer.css */\n")
    plain = anywidget.AnyWidget()
    assert set(shown.get_state()) == {*plain.get_state(), "_css"}
    before = shown.get_state()
    shown._handle_custom_msg({"id": 1, "question": {"ask": "about"}}, [])
    message, buffers = sent.get(timeout=10)
    assert message == {"id": 1}
    assert PAIRS.source[0].encode() in buffers[0]
    assert shown.get_state() == before
    shown.close()


@pytest.mark.usefixtures("_notebook")
def test_without_anywidget(model: Model, monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(UserError, match=r"pip install 'clearhead\[notebook\]'"):
        model.explore("one")


# --- elsewhere ---


@pytest.fixture
def opened(monkeypatch) -> "queue.Queue[str]":
    urls: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr(module, "in_notebook", lambda: False)
    monkeypatch.setattr(module, "open_browser", lambda url: urls.put(url) or True)
    return urls


def status(url: str) -> int:
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.netloc, timeout=20)
    connection.request("GET", f"{address.path}?{address.query}")
    code = connection.getresponse().status
    connection.close()
    return code


def test_elsewhere_a_page_of_the_browser(model: Model, opened: "queue.Queue[str]"):
    explorer = model.explore(PAIRS.source[0], PAIRS.target[0])
    assert isinstance(explorer, ExplorerInBrowser)
    assert opened.get(timeout=10) == explorer.url
    assert explorer.url.startswith("http://127.0.0.1:")
    assert status(explorer.url) == 303
    assert explorer.url in repr(explorer)
    explorer.close()
    explorer.wait()
    assert repr(explorer) == "Explorer, closed"
    with pytest.raises(ConnectionRefusedError):
        status(explorer.url)
    explorer.close()


def test_texts_to_look_for_examples_in(model: Model, monkeypatch):
    seen: list[Session] = []
    monkeypatch.setattr(module, "ExplorerInBrowser", seen.append)
    pairs = list(zip(PAIRS.source, PAIRS.target, strict=True))
    model.explore(data=iter(pairs))
    model.explore()
    given, none = (questions(session, "about")[0]["answers"] for session in seen)
    assert "examples" in given
    assert "examples" not in none
    assert questions(seen[0], "examples", at="encoder.blocks.0.resid_post[d=3]", top=2)[0]["of"] == len(pairs)
    with pytest.raises(UserError, match="data as a list of texts"):
        model.explore(data="one")


def test_where_no_browser_opens_somebody_has_to(model: Model, opened: "queue.Queue[str]", monkeypatch, caplog):
    monkeypatch.setattr(module, "open_browser", lambda _: False)
    explorer = model.explore()
    deadline = time.monotonic() + 10
    while explorer.url not in caplog.text:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    explorer.close()


def test_it_lives_as_long_as_the_process_though_nobody_keeps_it():
    code = (
        "import gc, http.client, logging, urllib.parse\n"
        "from clearhead.explorer.hosting import widget as module\n"
        "from tests.small_models import model_of\n"
        "module.check_built, module.open_browser = lambda: None, lambda _: True\n"
        "url = model_of('demo').explore('one two').url\n"
        "gc.collect()\n"
        "connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc)\n"
        "connection.request('GET', '/')\n"
        "print(connection.getresponse().status)\n"
    )
    done = processes.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "401\n", "")


@pytest.mark.parametrize(
    ("reads_images", "arguments", "message"),
    [
        (False, {"text": 3}, "expected one text, got int"),
        (False, {"text": "one", "target": ["two"]}, "expected one text, got list"),
        (False, {"image": np.zeros((8, 8, 3), np.uint8)}, "this model reads texts"),
        (True, {"text": "one"}, "this model reads images"),
    ],
)
def test_an_input_that_the_model_does_not_read(reads_images: bool, arguments: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        traced.model_of(traced.CONFIGS["vision" if reads_images else "encoder_states"]).explore(**arguments)
