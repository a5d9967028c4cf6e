"""Numbers of the places of one token, from its embedding to its word, against Python's."""

import re

import pytest
import torch
from torch import Tensor

from clearhead.analysis.attribution import Attribution, attribute
from clearhead.analysis.lens import logit_lens
from clearhead.config import ClassificationHead
from clearhead.explorer.answering.passes import LOCK
from tests.explorer.browser.conftest import spot_of
from tests.explorer.browser.numbers import agrees, mismatches
from tests.explorer.browser.page import Opened, eventually, said
from tests.explorer.browser.seeing import INPUTS, Spot, are, column, right
from tests.explorer.browser.views import show


def test_the_output(spot: Spot) -> None:
    """z of every head, what W_O makes of it, and their sum; how long each is."""
    page = spot.seen.opened
    show(page, "output")
    z, heads, out = (spot.of(f"{spot.part}.{name}") for name in ("z", "heads", "out"))

    def is_right() -> None:
        values = {"z, a row for each head": z, "z · W_O": heads, "out": out[None]}
        are(page.figures(), {label: value.tolist() for label, value in values.items()})
        for (_, *cells), head in zip(page.rows("Contribution along"), heads, strict=False):
            right(cells[-1], head @ out / out.norm())
        for (_, *cells), head in zip(page.rows("Length ‖head‖"), heads, strict=True):
            right(cells[-1], head.norm())

    eventually(is_right)


def test_a_norm(spot: Spot) -> None:
    """Mean and spread, and every row of the picture; x + f(x)."""
    page = spot.seen.opened
    show(page, "norm")
    post = spot.model.config.output.norm_place == "post"
    before = spot.of({"attn": "resid_pre", "cross": "resid_attn"}[spot.part])
    branch = spot.of(f"{spot.part}.out")
    x = before + branch if post else before
    parameters = spot.model.network.get_submodule(f"{spot.at}_norm")
    assert isinstance(parameters.eps, float)
    mean, spread = x.mean(), (x.var(correction=0) + parameters.eps).sqrt()
    gain, shift = (parameters.get_parameter(name).detach().double() for name in ("weight", "bias"))
    scaled = (x - mean) / spread

    def is_right() -> None:
        card = page.page.locator("main section.card", has=page.page.locator(".histogram")).first
        shown_mean, shown_spread = card.locator("dd").all_inner_texts()[:2]
        right(shown_mean, mean)
        right(shown_spread, spread)
        rows = torch.stack([x, scaled, gain, shift, scaled * gain + shift])
        values = {"Before, scaled, after": rows, "x + f(x)": torch.stack([before, branch, before + branch])}
        are(page.figures(), {label: value.tolist() for label, value in values.items()})

    eventually(is_right)


def test_the_feed_forward(spot: Spot) -> None:
    """The most active units, before and after the activation; what one of them writes."""
    page = spot.seen.opened
    show(page, "ffn")
    pre, post = spot.of("ffn.pre"), spot.of("ffn.post")
    down = spot.model.network.get_parameter(f"{spot.block}.ffn.down.weight").detach().double()

    def is_right() -> None:
        rows = page.rows("Most active units")
        units = [int(row[0].split()[-1]) for row in rows]
        assert {abs(float(post[unit])) for unit in units} == {*post.abs().topk(len(units)).values.tolist()}
        for unit, (_, *cells) in zip(units, rows, strict=True):
            right(cells[-1], post[unit])
        for unit, first, second in page.rows("before", "main figure:has(circle), main figure:has(path)"):
            right(first, pre[int(unit)])
            right(second, post[int(unit)])
        unit = units[0]
        figures = page.figures()
        writes = torch.stack([down[:, unit], down[:, unit] * post[unit]])
        are(figures, {f"What unit {unit} writes": writes.tolist()})
        name = next(name for name in figures if name.endswith("× these units"))
        matrix = figures[name]
        values = spot.seen.trace[f"{spot.block}.ffn.post"][0][:, [int(col) for col in matrix.cols]]
        are(figures, {name: values.tolist()})

    eventually(is_right)


@pytest.mark.parametrize("name", ["translator", "writer", "seer"])  # The filler has norms after its sums, no stream.
def test_the_residual_stream(see, name: str) -> None:
    """How long it is before and after each branch, and how the branch lies to it."""
    spot = spot_of(see, name)
    page = spot.seen.opened
    show(page, "residual")
    trace = spot.seen.trace
    branches = [("attn", "resid_pre", "resid_attn"), ("cross", "resid_attn", "resid_cross"), ("ffn", "", "resid_post")]
    expected: list[tuple[Tensor, Tensor, Tensor]] = []
    for layer in range(2):
        block = f"{spot.stack}.blocks.{layer}"
        stream = trace[f"{block}.resid_pre"][0, spot.t].double()
        for part, _, after in branches:
            if f"{block}.{part}.out" in trace:
                new = trace[f"{block}.{after}"][0, spot.t].double()
                expected.append((stream, trace[f"{block}.{part}.out"][0, spot.t].double(), new))
                stream = new

    def is_right() -> None:
        rows = page.rows("‖stream‖")[: len(expected)]
        assert len(rows) == len(expected)
        for (_, stream, adds, ratio, cosine, after, *_), (x, f, new) in zip(rows, expected, strict=True):
            right(stream, x.norm())
            right(adds, f.norm())
            right(ratio, f.norm() / x.norm())
            right(cosine, torch.cosine_similarity(x, f, dim=0))
            right(after, new.norm())

    eventually(is_right)


def test_an_embedding(spot: Spot) -> None:
    """Every vector on the way, and the one that goes into the first block."""
    page = spot.seen.opened
    show(page, "embedding")
    trace, t, stack = spot.seen.trace, spot.t, spot.stack

    def is_right() -> None:
        tables = [table for label, table in page.figures().items() if "step by step" in label]
        assert tables
        table = tables[0]
        found = 0
        for row, name in enumerate(table.rows):
            if f"{stack}.embed.{name}" in trace:
                values = trace[f"{stack}.embed.{name}"][0, t].tolist()
                shown = {(0, col): text for (r, col), text in table.cells.items() if r == row}
                assert mismatches(shown, [values]) == [], name
                found += 1
        assert found >= 2, table.rows
        for name, *_, number in page.rows("Its component"):
            if f"{stack}.embed.{name}" in trace:
                right(number, trace[f"{stack}.embed.{name}"][0, t, 0])

    eventually(is_right)


def test_logits_and_shares(spot: Spot) -> None:
    """The likeliest words with their logits; what each part wrote of the first one's."""
    page = spot.seen.opened
    show(page, "logits")
    model = spot.model
    head = model.config.head
    position = 0 if isinstance(head, ClassificationHead) else 2
    if not isinstance(head, ClassificationHead):
        page.page.locator(".ribbon .chips").last.get_by_role("button").nth(position).click()
    logits = spot.seen.logits if isinstance(head, ClassificationHead) else spot.seen.logits[position]
    names = list(head.labels) if isinstance(head, ClassificationHead) else model.tokenizer.tokens(range(len(logits)))

    def is_right() -> None:
        rows = page.rows("Logit")
        assert rows[0][0] == names[int(logits.argmax())]
        for word, logit, share, *_ in rows:
            if re.fullmatch(r"\d+ others", word):
                continue
            right(logit, logits[names.index(word)])
            assert agrees(share, float(logits.softmax(-1)[names.index(word)])), (word, share)

    eventually(is_right)
    if getattr(head, "transform", False):  # The filler's.
        gap = page.page.locator("section.card", has=page.page.locator("#attribution"))
        said(gap.inner_text, "is not a sum of what they wrote")
        return
    if isinstance(head, ClassificationHead):
        return
    with LOCK:
        inputs = model.reader.inputs(*INPUTS[spot.name], model.generation)
        one = attribute(model.network, inputs, int(logits.argmax()), position=position)
    eventually(lambda: _wrote(page, one))


def _wrote(page: Opened, one: Attribution) -> None:
    """The shares of a logit are right."""
    shares = sorted((float(share[0].detach()) for share in one.shares.values()), key=abs, reverse=True)
    *rows, rest = page.rows("Who wrote")
    for (_, *cells), share in zip(rows, shares, strict=False):
        right(cells[-1], share)
    right(rest[-1], sum(shares[len(rows) :]))


@pytest.mark.parametrize("name", ["translator", "writer", "filler"])  # The seer has no words.
def test_the_lens(see, name: str) -> None:
    """It opens at the position of the answer beside it, unless the reader chose another."""
    spot = spot_of(see, name)
    page = spot.seen.opened
    show(page, "lens")

    def is_right() -> None:
        caption = page.page.locator("main table caption", has_text="After block").first.text_content() or ""
        found = re.search(r"After block (\d+)", caption)
        assert found is not None, caption
        rows = page.rows("After block")
        named = page.page.locator("main tfoot th").evaluate_all("all => all.map((one) => one.classList.contains('on'))")
        position = page.fragment().get("position", named.index(True) - 1)
        lens = logit_lens(spot.model.network, spot.seen.trace, k=5)
        layer = lens.addresses.index(f"{spot.stack}.blocks.{found[1]}.resid_post")
        words = spot.model.tokenizer.tokens(lens.ids[layer, 0, int(position)].tolist())
        assert [word for word, *_ in rows] == words
        column(rows, lens.probabilities[layer, 0, int(position)])

    eventually(is_right)
