"""Numbers of attention and of the answer against Python's: within half the last digit, and 1e-5."""

import math
from functools import partial

import pytest
import torch

from tests.explorer.browser.conftest import Open
from tests.explorer.browser.numbers import agrees
from tests.explorer.browser.page import eventually, fragment
from tests.explorer.browser.seeing import INPUTS, SOURCE, TARGET, Seen, says, shows
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


@pytest.mark.parametrize(
    ("name", "stack", "part", "layer", "head", "query", "key"),
    [
        ("translator", "encoder", "attn", 1, 0, 2, 3),
        ("translator", "decoder", "attn", 0, 1, 3, 1),
        ("translator", "decoder", "cross", 1, 1, 4, 0),
        ("writer", "decoder", "attn", 1, 3, 5, 0),
        ("filler", "encoder", "attn", 0, 1, 2, 4),
        ("seer", "encoder", "attn", 1, 1, 0, 16),
    ],
)
def test_how_one_number_was_made(
    see, name: str, stack: str, part: str, layer: int, head: int, query: int, key: int
) -> None:
    place = {"stack": stack, "part": part, "layer": layer, "head": head, "query": query, "key": key}
    seen: Seen = see(name, **place, dim=3)
    at, h = f"{stack}.blocks.{layer}.{part}", f"[h={head}]"
    q, k = (seen.trace[f"{at}.{x}{h}"][0].double() for x in "qk")
    scores = q[query] @ k.T / math.sqrt(q.shape[-1])
    if part == "attn" and stack == "decoder":
        scores[query + 1 :] = -math.inf
    powers = (scores - scores.max()).exp()
    how = seen.opened.page.locator(".how")

    def chain_is_right() -> None:
        rows = how.locator("table.dot tr").evaluate_all(
            "rows => rows.map(row => [...row.querySelectorAll('td')].slice(0, -1).map(td =>"
            " td.title.replace(/^[0-9]+: /, '')))"
        )
        for cells, values in zip(rows, (q[query], k[key], q[query] * k[key]), strict=True):
            assert all(agrees(text, value) for text, value in zip(cells, values.tolist(), strict=True))
        total = how.locator("td.total b").inner_text()
        assert agrees(total, float(q[query] @ k[key]))
        scaled, power, share = how.locator(".chain-of-numbers dd").all_inner_texts()
        assert agrees(scaled, float(scores[key]))
        assert agrees(power, float(powers[key]))
        assert agrees(share, float(powers[key] / powers.sum()))

    eventually(chain_is_right)
    seen.opened.step("Weighted sum")

    def sum_is_right() -> None:
        total = seen.value(f"{at}.z{h}")[query][3]
        assert agrees(how.locator(".sum > b").inner_text(), total)

    eventually(sum_is_right)


# --- what the model says ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", INPUTS)
def test_what_the_model_says(see, name: str) -> None:
    """True shares over the whole vocabulary, at every position and temperature."""
    seen: Seen = see(name)
    show(seen.opened, "logits")
    page, every = seen.opened.page, seen.logits if seen.logits.ndim > 1 else [seen.logits]
    for position in range(min(5, len(every))):
        if len(every) > 1:
            page.locator(".ribbon .chips").last.get_by_role("button").nth(position).click()
        for temperature in (1.0, 0.35, 2.5) if position == 0 else (1.0,):
            page.get_by_label("Temperature").fill(str(temperature))
            says(seen.opened, every[position] / temperature)
        page.get_by_label("Temperature").fill("1")


def test_the_target_is_what_the_model_writes(open_page: Open) -> None:
    """Without a target the decoder reads what it wrote itself, greedily."""
    opened = open_page("translator", fragment(SOURCE, TARGET))
    opened.run("four nine two", "")
    written = opened.served.model.translate(["four nine two"])[0]
    words = opened.page.locator(".ribbon .chips").last.locator("button b").all_inner_texts()
    assert " ".join(word.lstrip("▁") for word in words) == f"<bos> {written}"
