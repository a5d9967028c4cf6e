"""Texts that are scripts where a page is careless: typed, as tokens, as labels, and as a name in a file."""

from functools import partial

from clearhead import config as c
from clearhead.explorer.session import Session
from clearhead.recipe.tokenizers import Words
from clearhead.text.tokenizers import Tokenizer
from tests.explorer.browser.conftest import Open, Serve
from tests.explorer.browser.files import written
from tests.explorer.browser.page import Opened, becomes, fragment
from tests.explorer.browser.seeing import SOURCE, TARGET
from tests.explorer.browser.trained import random_model, stack
from tests.explorer.browser.views import show

CALL = "window.__xss=1"
ELEMENTS = [
    f"<img src=x onerror={CALL}>", f"<svg onload={CALL}>", f"<details open ontoggle={CALL}>",
    f"<script>{CALL}</script>",
    f"<input autofocus onfocus={CALL}>", f"<svg><script>{CALL}</script>", f"<iframe src=javascript:{CALL}>x</iframe>",
    f'<iframe srcdoc="<script>parent.{CALL}</script>">', f"<object data=javascript:{CALL}>",
    f"<base href='javascript:{CALL}//'>", f"<meta http-equiv=refresh content='0;url=javascript:{CALL}'>",
    f"<marquee onstart={CALL}>", f"<style>@import 'javascript:{CALL}';</style>",
]  # fmt: skip
SCRIPTS = [
    *(around.format(element) for element in ELEMENTS for around in ("{}", '">{}', "'>{}", "</script>{}", "-->{}")),
    f"javascript:{CALL}", f"{{{{constructor.constructor('{CALL}')()}}}}", f"${{{CALL}}}", f"';{CALL};'", "{@html x}",
    "\u2028alert(1)", "\x00<script>", "&lt;script&gt;", "__proto__", "constructor", "\u202egnirts desrever",
]  # fmt: skip


def text_in(opened: Opened) -> str:
    return opened.fragment()["s"]


def is_harmless(opened: Opened) -> None:
    forbidden = ".clearhead :is(script, iframe, object, embed, base, meta, marquee, video, img[src=x])"
    assert opened.page.evaluate("typeof window.__xss") == "undefined"
    assert opened.page.locator(forbidden).count() == 0
    opened.is_clean()


def test_scripts_as_texts(open_page: Open) -> None:
    """Typed: each is read as words, and shown as text. Short ones alone, elements a few at a time."""
    opened = open_page("translator", fragment(SOURCE, TARGET, mode="research", view="tokens"), may_fail=True)
    alone = [text for text in SCRIPTS if "<" not in text or len(text) < 12]
    elements = [text for text in SCRIPTS if text not in alone]
    for text in [*alone, *(" ".join(elements[i : i + 12]) for i in range(0, len(elements), 12))]:
        opened.run(text)
        becomes(partial(text_in, opened), text)
    show(opened, "attention")
    is_harmless(opened)


def test_scripts_as_names_of_tokens_and_of_labels(open_page: Open, serve: Serve) -> None:
    """A vocabulary of nothing else: in the text, among the likeliest, in every label and title."""
    tokenizer = Tokenizer.train([" ".join(SCRIPTS)] * 2, Words(vocab_size=2000))
    reads = stack(input=c.TokenInput(vocab_size=tokenizer.vocab_size))
    labels = c.ClassificationHead(n_labels=len(SCRIPTS), labels=tuple(SCRIPTS))
    for config in (c.ModelConfig(decoder=reads), c.ModelConfig(encoder=reads, head=labels)):
        name, text = f"{ELEMENTS[0]} {config.head.kind}", " ".join(SCRIPTS[20:26])
        opened = open_page(serve(name, random_model(config, tokenizer), text=text))
        assert "<" in opened.page.locator(".stage").inner_text()
        for view in ("overview", "attention", "tokens", "embedding", "heads", "logits", "geometry", "residual"):
            show(opened, view)
        is_harmless(opened)
    assert {word for word, *_ in opened.chances()} <= set(SCRIPTS)


def test_scripts_in_a_file(open_file: Open, tmp_path) -> None:
    evil = f"</script>{ELEMENTS[0]}<script>{CALL}</script>"
    config = c.ModelConfig(decoder=stack())
    session = Session(random_model(config, Tokenizer.train(["one two"], Words())), name=evil, text=f"one two {evil}")
    opened = open_file(session, written(session, tmp_path / "a.html", state=fragment(f"one two {evil}")))
    for view in ("tokens", "logits", "attention"):
        show(opened, view)
    is_harmless(opened)
    assert opened.page.title() == f"{evil.rpartition('/')[2]} · clearhead"
