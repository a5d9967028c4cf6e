"""Numbers of texts on their way in and out against Python's: ids and merges, and what is written token by token."""

import math
import re

import pytest

from clearhead import config as c
from clearhead.explorer.answering.words import tokenized
from clearhead.recipe.tokenizers import BPE, ByteBPE
from clearhead.text.tokenizers import Tokenizer
from tests.explorer.asking import GENERATE, ask
from tests.explorer.browser.conftest import Open, Serve
from tests.explorer.browser.numbers import agrees
from tests.explorer.browser.page import Opened, becomes
from tests.explorer.browser.seeing import INPUTS, Seen, column
from tests.explorer.browser.trained import random_model, stack
from tests.explorer.browser.views import show
from tests.small_models import TEXTS

# --- tokens -----------------------------------------------------------------------------------------------------


def chips(opened: Opened, text: int) -> list[list[str]]:
    """Of each token of a text: its piece, its id, and where it stands."""
    cards = opened.page.locator("main section.card").nth(text)
    return cards.locator(".tokens .chip").evaluate_all(
        "chips => chips.map((chip) => [...chip.children].map((part) => part.textContent.trim()))"
    )


@pytest.mark.parametrize("name", ["translator", "writer", "filler"])
def test_ids_of_words(see, name: str) -> None:
    """Every id that the network reads, and the characters that it stands for; marks stand for none."""
    seen: Seen = see(name)
    show(seen.opened, "tokens")
    model, texts = seen.served.model, [text for text in INPUTS[name] if text is not None]
    inputs = model.reader.inputs(*INPUTS[name], model.generation)
    for i, (text, given) in enumerate(zip(texts, inputs, strict=True)):
        ids, places = given.ids[0].tolist(), iter(model.tokenizer.offsets(text))
        words = set(model.tokenizer.encode(text, target=i > 0))
        for (piece, shown, place), expected in zip(chips(seen.opened, i), ids, strict=True):
            assert int(shown) == expected
            assert piece == model.tokenizer.tokens([expected])[0]
            assert place == ("{}–{}".format(*next(places)) if expected in words else "mark")
        assert next(places, None) is None


@pytest.mark.parametrize(
    "scheme",
    [pytest.param(BPE(vocab_size=80), marks=pytest.mark.slow), ByteBPE(vocab_size=320)],
    ids=lambda scheme: scheme.kind,
)
def test_merges(open_page: Open, serve: Serve, scheme: BPE | ByteBPE) -> None:
    """Each word from its characters to its ids, merge by merge."""
    tokenizer = Tokenizer.train(TEXTS, scheme)
    config = c.ModelConfig(decoder=stack(input=c.TokenInput(vocab_size=tokenizer.vocab_size)))
    text = "seven three five"
    opened = open_page(serve(scheme.kind, random_model(config, tokenizer), text=text))
    show(opened, "tokens")
    assert [int(one) for _, one, _ in chips(opened, 0)] == tokenizer.encode(text)
    words = tokenized(tokenizer, text)["words"]
    assert sum(len(word["merges"]) for word in words) > 6
    for i, word in enumerate(words):
        opened.page.locator("main .word-of").nth(i).click()
        story = [
            [str(n), f"{merge['left']} + {merge['right']}", str(merge["rank"]), " ".join(merge["pieces"])]
            for n, merge in enumerate(word["merges"], start=1)
        ]
        spaced = [[cell.replace("␣", " ") if j == 3 else cell for j, cell in enumerate(row)] for row in story]
        becomes(lambda: [[cell.replace("␣", " ") for cell in row] for row in opened.rows("Rank")], spaced)


# --- what is written --------------------------------------------------------------------------------------------


NODE = re.compile(r".+: probability (.+), log-probability (.+), score (.+), (?:kept|dropped|an end), step (\d+)")


@pytest.mark.parametrize("name", ["translator", "writer"])
@pytest.mark.parametrize("beams", [1, 3])
def test_what_is_written(see, name: str, beams: int) -> None:
    """The likeliest tokens at every step, over the whole vocabulary, and every token of the tree."""
    seen: Seen = see(name)
    opened, text = seen.opened, INPUTS[name][0]
    show(opened, "generation")
    for label, value in (("tokens at most", 5), ("beams", beams)):
        field = opened.page.locator(".settings label", has_text=label).locator("input")
        field.fill(str(value))
        field.press("Tab")
    opened.button("Write", "main").click()
    run = {"text": text, "target": None, "edits": []}
    tree, _ = ask(seen.served.session, "generate", run=run, settings={**GENERATE, "beams": beams})
    texts = opened.page.locator(".text.A button")
    becomes(texts.all_inner_texts, [tree["nodes"][i]["text"] for i in tree["best"]])
    for i, taken in enumerate(tree["best"]):
        texts.nth(i).click()
        top = [one for k, one in enumerate(tree["steps"][i]["top"]) if k < 5 or one[0] == tree["nodes"][taken]["id"]]
        rows = opened.rows(f"Likeliest at step {i + 1}")
        names = [tree["words"][str(one)] for one, _ in top]
        assert [row[0].removeprefix("▸ ") for row in rows] == names
        column(rows, [share for _, share in top])
        assert [row[0][0] == "▸" for row in rows] == [one == tree["nodes"][taken]["id"] for one, _ in top]
    listed = opened.page.locator("main .lists li").evaluate_all("all => all.map((one) => one.firstChild.textContent)")
    found = [match for one in listed if (match := NODE.fullmatch(one.strip()))]
    nodes = [[math.exp(one["log_prob"]), one["log_prob"], one["score"], one["step"] + 1] for one in tree["nodes"][1:]]
    assert len(found) == len(nodes)
    for texts in (match.groups() for match in found):
        assert any(all(map(agrees, texts, node)) for node in nodes), texts
