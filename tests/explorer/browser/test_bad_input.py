"""Whatever is typed or linked to: a clear message in the page, nothing executed, nothing lost."""

import secrets
import threading
from pathlib import Path

import pytest

from clearhead import config as c
from clearhead.errors import UserError
from clearhead.explorer.export.page import rounded_model
from clearhead.explorer.hosting.server import serving
from clearhead.explorer.session import Session
from clearhead.web import listen
from tests.explorer.browser.conftest import Open, Serve
from tests.explorer.browser.files import written
from tests.explorer.browser.page import Served, becomes, fragment, said
from tests.explorer.browser.trained import MOST, random_model, stack
from tests.explorer.browser.views import VIEWS, show

TEXT = "six seven eight nine ten one"
SLOW = pytest.mark.slow
OF_MODELS = ["translator", *(pytest.param(name, marks=SLOW) for name in ("writer", "filler"))]


# --- numbers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("locale", "written"), [("de-DE", "0,5"), ("fr-FR", "0,5"), ("en-GB", "0.5")])
def test_a_setting_is_read_as_its_language_writes_it(open_page: Open, locale: str, written: str) -> None:
    """A number with either mark is taken and shown with the language's; what is none stays, and changes nothing."""
    page = open_page("writer", fragment("two three", view="generation"), locale=locale).page
    fields = page.locator("form.settings input")
    fields.first.wait_for()
    temperature = fields.nth(2)
    for typed, shown, is_wrong in (("0,5", written, "false"), ("0.5", written, "false"), ("warm", "warm", "true")):
        temperature.fill(typed)
        temperature.press("Tab")
        assert (temperature.input_value(), temperature.get_attribute("aria-invalid")) == (shown, is_wrong)
    fields.first.fill("4,7")
    fields.first.press("ArrowUp")
    assert fields.first.input_value() == "5"


# --- texts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["writer", pytest.param("filler", marks=pytest.mark.slow)])
def test_a_text_that_is_too_long(open_page: Open, name: str) -> None:
    """The message says the limit; what was there stays, and the next text is read."""
    opened = open_page(name, fragment(TEXT), may_fail=True)
    before = opened.chances()
    opened.run(" ".join(["one"] * (MOST + 1)))
    alert = said(lambda: opened.alert, str(MOST))
    assert str(MOST + 1) in alert
    assert opened.chances() == before
    assert opened.page.locator(".ribbon .chip").count() >= 6
    opened.run("two three")
    becomes(lambda: opened.alert, None)
    assert opened.page.locator(".ribbon .chips button b").all_inner_texts() == ["▁two", "▁three"]


@pytest.mark.parametrize("where", ["page", "file", "large file"])
def test_a_refused_text_leaves_the_run_before_it(
    serve: Serve, open_page: Open, open_file: Open, tmp_path: Path, where: str
) -> None:
    """Its switch acts on what is shown and takes the alert away; the refused text never becomes a step of undo."""
    served, state = serve("writer"), fragment(TEXT, view="attention", layer=1)
    if where == "page":
        opened = open_page(served, state, may_fail=True)
    else:
        model, matrices = rounded_model(served.model, "int8") if where == "large file" else (served.model, {})
        session = Session(model, name="writer", text=TEXT, matrices=matrices)
        opened = open_file(session, written(session, tmp_path / "a.html", state=state))
    field = opened.page.get_by_label("Text for the model to read")
    before = edited = opened.chances()
    too_long = "one " * 5000
    for switched in (False, True):
        opened.run(too_long)
        said(lambda: opened.alert)
        assert (field.input_value(), opened.fragment()["s"]) == (too_long, TEXT)
        if switched:
            assert opened.chances() == edited
        else:
            assert opened.chances() == before
            opened.button("off", ".change").click()
            becomes(lambda: opened.alert, None)
            opened.settled()
            edited = opened.chances()
            assert all(b is not None for _, _, b in edited)
            becomes(lambda: (field.input_value(), len(opened.fragment().get("edits", []))), (TEXT, 1))
    opened.run("two three")
    becomes(lambda: opened.alert, None)
    assert opened.page.locator(".ribbon .chips button b").all_inner_texts() == ["▁two", "▁three"]
    opened.button("undo", ".heading").click()
    becomes(field.input_value, TEXT)


@pytest.mark.parametrize("name", OF_MODELS)
def test_words_without_a_token(open_page: Open, name: str) -> None:
    opened = open_page(name)
    opened.run("one zorblax three ☃")
    note = said(opened.page.locator("main .note").first.inner_text, "zorblax")
    assert "☃" in note
    assert opened.alert is None


@pytest.mark.parametrize("name", OF_MODELS)
def test_an_empty_text(open_page: Open, name: str) -> None:
    """A message, or a pass over the marks alone; every view stands it."""
    opened = open_page(name, fragment(TEXT), may_fail=True)
    for text in ("", "   ", "\u200b"):
        opened.run(text)
        assert opened.alert is None or len(opened.alert.splitlines()) == 1
        for view in () if text == "   " else ("tokens", "attention", "logits", "heads"):
            show(opened, view)
            assert opened.page.locator("main").inner_text().strip()
        opened.run("two three")
        becomes(lambda: opened.alert, None)


def test_a_model_without_a_tokenizer(open_page: Open, serve: Serve) -> None:
    """Texts are ids; what is none is told."""
    config = c.ModelConfig(decoder=stack())
    opened = open_page(serve("bare", random_model(config, None)), fragment("5 17 3"), may_fail=True)
    assert opened.page.locator(".ribbon .chips button b").all_inner_texts() == ["5", "17", "3"]
    assert "no tokenizer" in opened.page.locator("main .note").first.inner_text()
    for text in ("one two", "5 17 99999", ""):
        opened.run(text)
        assert len(said(lambda: opened.alert).splitlines()) == 1
        opened.run("5 17 3")
        becomes(lambda: opened.alert, None)
    for view in VIEWS:
        if view not in ("image", "training", "examples", "features"):
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
    said(lambda: opened.alert, "Start `clearhead explore` again")
    assert opened.chances()[0][:2] == before[0][:2]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "token_urlsafe", lambda _: token)
        with serving(known.session, listen(port)):
            opened.button("mean", ".change").click()
            opened.settled()
            becomes(lambda: opened.alert, None)
            opened.page.get_by_test_id("moved").wait_for()


class Faulty:
    """A session of which one kind of question fails."""

    def __init__(self, session: Session, ask: str, error: Exception) -> None:
        self.session, self.ask, self.error, self.failing = session, ask, error, threading.Event()

    def answer(self, question):
        if self.failing.is_set() and question["ask"] == self.ask:
            raise self.error
        return self.session.answer(question)


@pytest.mark.parametrize(
    ("ask", "view"),
    [("values", "attention"), ("generate", "generation"),
     *(pytest.param(*one, marks=SLOW) for one in (
         ("effects", "heads"), ("check", "attention"),
         ("values", "residual"), ("lens", "lens"), ("statistics", "heads"), ("neighbours", "embedding"),
         ("tokenize", "tokens"), ("attribution", "logits"), ("weights", "embedding")))],
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
            said(opened.page.locator("main").inner_text, "this is why")
        faulty.failing.clear()
        opened.step("Logits → word")
        opened.page.locator("main .choices tbody tr, main table tbody tr").nth(4).wait_for()
        show(opened, view)
        opened.is_clean()
