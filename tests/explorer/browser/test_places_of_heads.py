"""Numbers of heads against Python's: all of them at once, over the patches of an image, and over a training run."""

import json
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from clearhead.analysis.ablation import effects as effects_of
from clearhead.analysis.attention import head_statistics
from clearhead.api import load
from clearhead.explorer.answering.passes import LOCK
from clearhead.recipe.places import METRICS
from tests.explorer.browser.conftest import Open, spot_of
from tests.explorer.browser.numbers import NUMBER
from tests.explorer.browser.page import Served, becomes, eventually, fragment
from tests.explorer.browser.seeing import IMAGE, SOURCE, TARGET, Spot, all_right, are, column, right
from tests.explorer.browser.trained import PATCH, SIDE
from tests.explorer.browser.views import show

# --- all heads --------------------------------------------------------------------------------------------------

CARDS = """async (cards) => {
  const shown = [];
  for (const card of cards) {
    card.focus();
    await new Promise((done) => setTimeout(done));
    const facts = [...document.querySelectorAll(".facts dd")].map((one) => one.textContent);
    shown.push([card.dataset.head, card.closest("li").querySelector("small")?.textContent ?? "", card.title, facts]);
  }
  return shown;
}"""


def test_all_heads(spot: Spot) -> None:
    """How far the answers move without each, and what its weights say of it; the strongest first where asked."""
    page, seen = spot.seen.opened, spot.seen
    show(page, "heads")
    paths = [name for name in seen.trace.axes if name.endswith(".weights")]
    weights = [f"{path}[h={h}]" for path in paths for h in range(seen.trace[path].shape[1])]
    network, given = (
        seen.served.model.network,
        seen.served.model.reader.inputs(*seen.given, seen.served.model.generation),
    )
    with LOCK:
        found = effects_of(network, given, [head.replace(".weights", ".z") for head in weights])
        statistics = head_statistics(network, given, seen.trace)
    effects = dict(zip(weights, found.values(), strict=True))
    most = max(effects.values())

    def is_right() -> None:
        if page.page.locator("option[value=all]").count():  # Else it is of the answer that is decided.
            page.page.get_by_label("Effect on").select_option("all")
        cards = page.page.locator(".mosaic .open").evaluate_all(CARDS)
        assert {head for head, *_ in cards} == set(weights)
        for head, small, title, (entropy, first, previous, same, after, offset, distance) in cards:
            if small.strip():
                right(small, effects[head])
                assert f", effect {small} nats" in title, title
            else:
                assert effects[head] < 0.021 * most or most < 1e-3, "what is hardly missed has no number"
            facts = statistics[head]
            all_right(entropy, facts.entropy, facts.relative_entropy)
            for text, name in ((first, "first"), (previous, "previous"), (same, "same"), (after, "next")):
                right(text, getattr(facts, name))
            all_right(offset, facts.offset, facts.offset_share)
            right(distance, facts.distance)

    eventually(is_right)
    page.button("by effect", "main").click()

    def is_ordered() -> None:
        heads = page.page.locator(".mosaic .open").evaluate_all("cards => cards.map((card) => card.dataset.head)")
        assert [effects[head] for head in heads] == pytest.approx(sorted(effects.values(), reverse=True), abs=1e-5)

    eventually(is_ordered)
    page.button("in place", "main").click()


# --- patches ----------------------------------------------------------------------------------------------------

MIDDLES = """([figure], side) => {
  const canvas = figure.querySelector("canvas"), step = canvas.width / side;
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const middle = (i) => Math.floor((i + 0.5) * step);
  const place = (i) => 4 * (middle(Math.floor(i / side)) * canvas.width + middle(i % side));
  return Array.from({ length: side * side }, (_, i) => [...data.slice(place(i), place(i) + 3)]);
}"""


def test_patches_over_the_image(see) -> None:
    """The pixels, and what a query gives to every patch and to the class token: of a head, and of all on average."""
    spot = spot_of(see, "seer", head=1, key=3)
    page, rows = spot.seen.opened, SIDE // PATCH
    show(page, "image")
    figure = page.page.locator("main figure", has=page.page.locator("figcaption b", has_text="What the model reads"))
    pixels = np.array(figure.evaluate_all(MIDDLES, SIDE)).reshape(SIDE, SIDE, 3)
    # Only the grid's lines, half through, are not the image's.
    inside = np.arange(SIDE) % PATCH > 0
    low, high = IMAGE.min(), IMAGE.max()
    expected = (IMAGE.astype(float) - low) / (high - low) * 255
    assert np.abs(pixels - expected)[np.ix_(inside, inside)].max() < 1

    def looks(layer: int, query: int, head: int | None) -> None:
        all_heads = spot.seen.trace[f"encoder.blocks.{layer}.attn.weights"][0, :, query]
        weights = all_heads.mean(0) if head is None else all_heads[head]
        are(page.figures(), {"Where it looks": weights[1:].view(rows, rows).tolist()})
        class_share = page.page.locator("p .class-token b").inner_text()
        right(class_share, weights[0])
        sentence = page.page.locator("main p.headline", has_text="of its attention").inner_text()
        (share,) = [one[0] for one in NUMBER.finditer(sentence) if one["percent"]]
        right(share, weights[int(page.fragment().get("key", 0))])

    eventually(partial(looks, 1, 5, 1))
    block, head = page.page.locator(".settings select").all()
    head.select_option("0")
    eventually(partial(looks, 1, 5, 0))
    block.select_option("0")
    page.button("Ask as the class token", "main").click()
    eventually(partial(looks, 0, 0, 0))
    page.page.get_by_label("mean of all 2 heads").check()
    eventually(partial(looks, 0, 0, None))


# --- training time ----------------------------------------------------------------------------------------------


def test_a_run_in_time(open_page: Open, run_of_12_steps: Served) -> None:
    """Losses and scores of its log; a weight and the answer at each checkpoint."""
    served = run_of_12_steps
    (log,) = Path(served.session.name).rglob(METRICS)
    events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    losses = {event["step"]: event["loss"] for event in events if event["kind"] == "stepped"}
    scores = {
        event["step"]: next(iter(event["scores"].values()))["value"] for event in events if event["kind"] == "evaluated"
    }
    checkpoints = {int(one.name.removeprefix("step-")): load(one) for one in sorted(log.parent.glob("step-*"))}
    assert len(checkpoints) > 3

    place = {"stack": "decoder", "part": "cross", "layer": 0, "head": 1, "query": 1, "key": 2, "position": 1}
    page = open_page(served, fragment(SOURCE, TARGET, **place))
    show(page, "training")
    traces = {step: served.traced(model, SOURCE, TARGET) for step, model in checkpoints.items()}
    weights = {step: trace["decoder.blocks.0.cross.weights[h=1]"][0] for step, (trace, _) in traces.items()}
    shares = {step: logits[1].softmax(-1) for step, (_, logits) in traces.items()}
    names = served.model.tokenizer.tokens(range(served.model.tokenizer.vocab_size))

    def at_each_step(table: list[list[str]], values: dict[int, float | Tensor]) -> None:
        assert [int(step) for step, _ in table] == list(values)
        column(table, [float(value) for value in values.values()])

    def is_right(step: int) -> None:
        at_each_step(page.tables("Training loss by step")["Training loss by step"], losses)
        at_each_step(page.tables("Score by step")["Score by step"], scores)
        (of_weight,) = page.tables("Weight ▁eins → ▁nine").values()
        at_each_step(of_weight, {one: weight[1, 2] for one, weight in weights.items()})
        answers = page.tables("Answer")
        assert names[int(shares[step].argmax())] in answers
        for word, table in answers.items():
            at_each_step(table, {one: share[names.index(word)] for one, share in shares.items()})

    best = json.loads((log.parent / "best.json").read_text(encoding="utf-8"))["step"]
    eventually(partial(is_right, best))
    cards = page.page.locator(".checkpoints li")
    shown = [one.partition("loss ")[2] for one in cards.locator("small").all_inner_texts()]
    column([[one] for one in shown], [losses[step] for step in checkpoints])
    first, last = min(checkpoints), max(checkpoints)
    assert first != best
    cards.first.get_by_role("button").first.click()
    page.settled()
    eventually(partial(is_right, first))
    cards.last.get_by_role("button", name=re.compile("pin")).click()
    becomes(lambda: (page.fragment().get("other") or {}).get("step"), last)
    assert not torch.allclose(weights[first], weights[last], atol=0.02)
