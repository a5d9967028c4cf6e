"""200 texts that are scripts where a page is careless: typed, as tokens, as labels."""

from functools import partial

from clearhead import config as c
from clearhead.recipe.tokenizers import Words
from clearhead.text.tokenizers import Tokenizer
from tests.explorer.browser.conftest import Open, Serve
from tests.explorer.browser.page import Opened, becomes, fragment
from tests.explorer.browser.trained import random_model, stack
from tests.explorer.browser.views import show

SOURCE, TARGET = "seven two nine one", "eins neun zwei sieben"


def scripts() -> list[str]:
    """200 texts that run `__xss` where a page takes them for more than text."""
    call = "window.__xss=1"
    elements = [
        *(f"<{tag} {event}={call}>"
          for tag in ("img src=x", "svg", "body", "video src=x", "details open", "input autofocus")
          for event in ("onerror", "onload", "onfocus", "ontoggle", "onmouseover", "onanimationstart")),
        *(f"<{name}>{call}</{name}>" for name in ("script", "SCRIPT", "ScRiPt", "script/x", "script\t", "svg><script")),
        *(f"<{tag} {link}=javascript:{call}>x</{tag}>" for tag, link in (
            ("a", "href"), ("iframe", "src"), ("form", "action"), ("object", "data"), ("embed", "src"),
            ("math", "href"), ("button", "formaction"), ("link rel=stylesheet", "href"))),
        f'<iframe srcdoc="<script>parent.{call}</script>">', f"<style>@import 'javascript:{call}';</style>",
        f"<meta http-equiv=refresh content='0;url=javascript:{call}'>", f"<base href='javascript:{call}//'>",
        f"<template><script>{call}</script></template>", f"<noscript><img src=x onerror={call}></noscript>",
        f"<textarea autofocus onfocus={call}>", f"<marquee onstart={call}>", f"<x contenteditable onblur={call}>",
    ]  # fmt: skip
    around = ["{}", '">{}', "'>{}", "</script>{}", "</style></title>{}", "-->{}", "]]>{}", "{}{{7*7}}${{7*7}}"]
    made = [form.format(element) for form in around for element in elements]
    others = [
        f"javascript:{call}", f"{{{{constructor.constructor('{call}')()}}}}", f"${{{call}}}", f"`;{call};`",
        f"';{call};'", "\u2028alert(1)", "\x00<script>", "%3Cscript%3E", "&lt;script&gt;", "&#60;script&#62;",
        "__proto__", "constructor", "</pre></code><script>", "style=background:url(javascript:1)", "{@html x}",
        "\u202egnirts desrever",
    ]  # fmt: skip
    return [*others, *made][:: max(1, len(made) // 184)][:200]


def text_in(opened: Opened) -> str:
    return opened.fragment()["s"]


def watched(opened: Opened) -> list[str]:
    """Every dialog from now on."""
    dialogs: list[str] = []

    def shown(dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    opened.page.on("dialog", shown)
    return dialogs


def is_harmless(opened: Opened, dialogs: list[str]) -> None:
    assert dialogs == []
    assert opened.page.evaluate("typeof window.__xss") == "undefined"
    assert (
        opened.page.locator(
            ".clearhead :is(script, iframe, object, embed, base, meta, marquee, video, img[src=x])"
        ).count()
        == 0
    )
    opened.is_clean()


def test_there_are_200_of_them() -> None:
    assert len(set(scripts())) == 200


def test_scripts_as_texts(open_page: Open) -> None:
    """Typed: each is read as words, and shown as text. Short ones alone, elements a few at a time."""
    opened = open_page("translator", fragment(SOURCE, TARGET, mode="research", view="tokens"), may_fail=True)
    dialogs = watched(opened)
    pieces = scripts()
    alone = [piece for piece in pieces if "<" not in piece or len(piece) < 12]
    elements = [piece for piece in pieces if piece not in alone]
    for text in [*alone, *(" ".join(elements[i : i + 12]) for i in range(0, len(elements), 12))]:
        opened.run(text)
        becomes(partial(text_in, opened), text)
    show(opened, "attention")
    is_harmless(opened, dialogs)


def test_scripts_as_names_of_tokens(open_page: Open, serve: Serve) -> None:
    """A vocabulary of nothing else: in the text, among the likeliest, in every label and title."""
    pieces = scripts()
    tokenizer = Tokenizer.train([" ".join(pieces)] * 2, Words(vocab_size=2000))
    config = c.ModelConfig(decoder=stack(input=c.TokenInput(vocab_size=tokenizer.vocab_size)))
    served = serve("scripts", random_model(config, tokenizer), text=" ".join(pieces[20:26]))
    opened = open_page(served)
    dialogs = watched(opened)
    assert "<" in opened.page.locator(".ribbon").inner_text()
    for view in ("attention", "tokens", "embedding", "heads", "logits", "lens", "geometry", "residual"):
        show(opened, view)
        is_harmless(opened, dialogs)


def test_scripts_as_names_of_labels(open_page: Open, serve: Serve) -> None:
    pieces = scripts()
    config = c.ModelConfig(
        encoder=stack(input=c.TokenInput(vocab_size=40)),
        head=c.ClassificationHead(n_labels=len(pieces), labels=tuple(pieces)),
    )
    tokenizer = Tokenizer.train(["one two three"], Words())
    opened = open_page(
        serve("<img src=x onerror=window.__xss=1>", random_model(config, tokenizer), text="one two three")
    )
    dialogs = watched(opened)
    for view in ("attention", "logits", "heads"):
        show(opened, view)
    assert len(opened.chances()) == 5
    assert {word for word, *_ in opened.chances()} <= set(pieces)
    is_harmless(opened, dialogs)
