"""Numbers of attention and of the answer against Python's: within half the last digit, and 1e-5."""

import math
from functools import partial

import pytest
import torch

from clearhead.config import ClassificationHead
from tests.explorer.browser.conftest import Open
from tests.explorer.browser.page import becomes, eventually, fragment
from tests.explorer.browser.seeing import INPUTS, SOURCE, TARGET, Seen, column, shows
from tests.explorer.browser.views import show

PLACES = {
    "translator": [("encoder", "attn"), ("decoder", "attn"), ("decoder", "cross")],
    "writer": [("decoder", "attn")],
    "filler": [("encoder", "attn")],
    "seer": [("encoder", "attn")],
}


# --- attention --------------------------------------------------------------------------------------------------


def heads_of(name: str) -> list[tuple[str, str, int, int]]:
    n_heads = 4 if name == "writer" else 2
    return [(*place, layer, head) for place in PLACES[name] for head in range(n_heads) for layer in [1 - head % 2]]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "filler" else ()) for name in INPUTS]
)
def test_attention(see, name: str) -> None:
    """Q, K, V, Y, scores, scaled and weights, of every head of every part, in one block or the other."""
    seen = see(name)
    for stack, part, layer, head in heads_of(name):
        seen.opened.choose(stack, layer, part, head)
        at, h = f"{stack}.blocks.{layer}.{part}", f"[h={head}]"
        q, k = seen.trace[f"{at}.q{h}"][0].double(), seen.trace[f"{at}.k{h}"][0].double()
        product = q @ k.T
        scaled = product / math.sqrt(q.shape[-1])
        if part == "attn" and stack == "decoder":
            scaled = scaled.masked_fill(torch.ones_like(scaled).triu(1).bool(), -math.inf)

        assert torch.allclose(scaled.softmax(-1).float(), seen.trace[f"{at}.weights{h}"][0], atol=1e-5)
        vectors = {label: seen.value(f"{at}.{x}{h}") for label, x in (("Q", "q"), ("K", "k"), ("V", "v"), ("Y", "z"))}
        matrices = {"Scores": product, "Scaled": scaled, "Weights": scaled.softmax(-1)}
        for (label, matrix), step in zip(matrices.items(), ("Scores QKᵀ", "Scale ÷ √dₖ", "Softmax"), strict=True):
            seen.opened.button(step, "main").click()
            eventually(partial(shows, seen, {**vectors, label: matrix.tolist()}))
        assert seen.opened.figures()["Weights"].sums == ["1.00"] * len(q)


# --- what the model says ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", INPUTS)
def test_what_the_model_says(see, name: str) -> None:
    """True shares over the whole vocabulary, at every position and temperature."""
    seen: Seen = see(name)
    show(seen.opened, "logits")
    page, every = seen.opened.page, seen.logits if seen.logits.ndim > 1 else [seen.logits]
    head, model = seen.served.model.config.head, seen.served.model
    for position in range(min(5, len(every))):
        if len(every) > 1:
            page.locator(".ribbon .chips").last.get_by_role("button").nth(position).click()
        names = (
            list(head.labels)
            if isinstance(head, ClassificationHead)
            else model.tokenizer.tokens(range(len(every[position])))
        )
        for temperature in (1.0, 0.35, 2.5) if position == 0 else (1.0,):
            page.get_by_label("Temperature").fill(str(temperature))
            shares = (every[position] / temperature).softmax(-1)

            def is_right(names: list[str] = names, shares: torch.Tensor = shares) -> None:
                rows = [row for row in seen.opened.rows("Logit") if row[0] in names]
                assert rows[0][0] == names[int(shares.argmax())]
                column(rows, [float(shares[names.index(word)]) for word, *_ in rows])

            eventually(is_right)
        page.get_by_label("Temperature").fill("1")


def test_the_target_is_what_the_model_writes(open_page: Open) -> None:
    """Without a target the decoder reads what it wrote itself, greedily."""
    opened = open_page("translator", fragment(SOURCE, TARGET, stack="decoder", layer=0, head=0, query=0, key=0))
    opened.run("four nine two", "")
    written = opened.served.model.translate(["four nine two"])[0]
    words = opened.page.locator(".ribbon .chips").last.locator("button b")
    becomes(lambda: " ".join(word.lstrip("▁") for word in words.all_inner_texts()), f"<bos> {written}")
