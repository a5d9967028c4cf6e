"""The place of the examples: the texts that Python finds, streamed, and what a click on one opens."""

from typing import Any

from clearhead.api import load
from clearhead.capture import Example, Examples
from clearhead.explorer.answering.data_sets import longer
from tests.explorer.browser.conftest import Open, Serve
from tests.explorer.browser.page import Opened, becomes, eventually, fragment
from tests.explorer.browser.trained import PAIRS
from tests.explorer.browser.views import show
from tests.small_models import TEXTS

AT = "decoder.blocks.1"


def test_the_strongest_texts_and_what_they_open(open_page: Open, serve: Serve, folder_of) -> None:
    folder = folder_of("writer")
    served = serve("writer with data", load(folder), folder=folder, data=TEXTS)
    opened = open_page(served, fragment(TEXTS[0], stack="decoder", layer=1, head=1))
    show(opened, "examples")
    kinds = {
        "where it looks": f"{AT}.attn.weights[h=1]",
        "what it writes": f"{AT}.attn.z[h=1]",
        "unit 0": f"{AT}.ffn.post[f=0]",
    }
    items = opened.page.locator("main ul li button")
    for name, at in kinds.items():
        opened.page.locator("main .segmented button", has_text=name).click()
        looks = name == "where it looks"
        every = Examples(served.model, longer(TEXTS) if looks else TEXTS, at, top=60).all()

        def is_right(every=every, looks=looks) -> None:
            marked = [text.strip() for text in opened.page.locator("main ul li .here").all_inner_texts()]
            best = _shown(every, marked[0] if looks else None)
            assert items.count() == len(best)
            assert marked == [_word(one) for one in best]
            last = ""
            for shown, one in zip(items.locator("b").all_inner_texts(), best, strict=True):
                last = shown or last  # A score like that of the line above is not repeated.
                _agrees(last, one.value)

        eventually(is_right)
    every = Examples(served.model, longer(TEXTS), f"{AT}.attn.weights[h=1]", top=60).all()
    opened.page.locator("main .segmented button", has_text="where it looks").click()
    opened.quiet()
    best = _shown(every, opened.page.locator("main ul li .here").first.inner_text().strip())
    items.first.click()
    becomes(lambda: opened.fragment().get("view", "attention"), "attention")
    becomes(lambda: opened.fragment()["s"], best[0].text)
    state = opened.fragment()
    assert (int(state.get("query", 0)), int(state.get("key", 0))) == (best[0].position, best[0].key)


def test_cross_attention_looks_into_the_source(open_page: Open, serve: Serve, folder_of) -> None:
    """The word that is written next, and in the line above it the word of the source that is read."""
    folder = folder_of("translator")
    pairs = [*zip(PAIRS.source[:12], PAIRS.target[:12], strict=True)]
    served = serve("translator with data", load(folder), folder=folder, data=pairs)
    state = fragment(*pairs[0], stack="decoder", layer=1, part="cross", head=1, view="examples")
    opened = open_page(served, state)
    best = Examples(served.model, longer(pairs), f"{AT}.cross.weights[h=1]", top=60).all()
    wanted = set[tuple[str, str]]()
    for one in best:
        assert one.source is not None
        assert one.key is not None
        source, target = one.text or ("", "")
        words = [*target.split(), "<eos>"]
        wanted.add((f"{one.source[one.key]}".replace("▁", ""), words[one.position]))
        assert one.source[one.key].replace("▁", "") in source.split()
    rows = opened.page.locator("main ul li button")

    def is_right() -> None:
        marks = [row.locator(".shade").all_inner_texts() for row in rows.all()]
        assert marks
        assert {(read.strip(), written.strip()) for read, written in marks} <= wanted

    eventually(is_right)


def test_a_head_and_a_unit_lead_there(open_page: Open, serve: Serve, folder_of) -> None:
    folder = folder_of("writer")
    served = serve("writer with data", load(folder), folder=folder, data=TEXTS)
    for view, at in (("heads", f"{AT}.attn.weights[h=1]"), ("ffn", f"{AT}.ffn.post[f=5]")):
        dim: dict[str, Any] = {"dim": 5} if view == "ffn" else {}
        opened = open_page(served, fragment(TEXTS[0], stack="decoder", layer=1, head=1, view=view, **dim))
        opened.settled()
        opened.quiet()
        lead = opened.page.get_by_role("button", name="Which texts excite it most?")
        eventually(lambda opened=opened, lead=lead: _unfold(opened, lead))
        lead.click()
        every = Examples(served.model, longer(TEXTS) if view == "heads" else TEXTS, at, top=60).all()

        def is_right(opened=opened, every=every, looks=view == "heads") -> None:
            first = opened.page.locator("main ul li").first
            word = first.locator(".here").inner_text().strip()
            _agrees(first.locator("b").inner_text(), _shown(every, word if looks else None)[0].value)

        eventually(is_right)


def test_what_is_unfolded_stays_so_when_the_figure_comes_again(open_page: Open, serve: Serve, folder_of) -> None:
    folder = folder_of("writer")
    served = serve("writer", load(folder), folder=folder)
    opened = open_page(served, fragment(TEXTS[0], stack="decoder", layer=1, head=1, view="heads"))
    opened.quiet()
    opened.page.locator("main details > summary").first.click()
    opened.page.get_by_role("switch").first.click()
    for place in ("Softmax", "Heads"):
        opened.step(place)
        opened.quiet()
    becomes(opened.page.locator("main details[open]").count, 1)


def _word(one: Example) -> str:
    return one.tokens[one.position].replace("▁", " ").strip()


def _shown(every: list[Example], word: str | None, most: int = 11) -> list[Example]:
    """Those of one word first; of texts in which the same words stand for it the strongest, then the others."""
    every = sorted(every, key=lambda one: word is not None and _word(one) != word)
    words = [(one.tokens[one.position], one.tokens[one.key] if one.key is not None else "") for one in every]
    first = [i for i, word in enumerate(words) if words.index(word) == i]
    kept = {*[*first, *(i for i in range(len(every)) if i not in first)][:most]}
    return [one for i, one in enumerate(every) if i in kept]


def _unfold(opened: Opened, lead: Any) -> None:
    """The figures that come late are unfolded too."""
    opened.page.evaluate("for (const one of document.querySelectorAll('main details')) one.open = true")
    assert lead.is_visible()


def _agrees(shown: str, value: float) -> None:
    number = shown.replace("−", "-").lstrip("> ")
    number = float(number.rstrip("% ")) / 100 if "%" in number else float(number)
    assert abs(number - value) < 0.006 * max(1, abs(value))
