"""Numbers of the places of one token, from its embedding to its word, against Python's."""

import math
import re

import pytest
import torch
from torch import Tensor

from clearhead.analysis.attribution import Attribution, attribute
from clearhead.analysis.geometry import neighbours, token_table
from clearhead.analysis.lens import logit_lens
from clearhead.config import ClassificationHead
from clearhead.explorer.answering.passes import LOCK
from clearhead.trace import Edit, zero
from tests.explorer.browser.conftest import Open, spot_of
from tests.explorer.browser.numbers import agrees
from tests.explorer.browser.page import Opened, becomes, eventually, said
from tests.explorer.browser.seeing import INPUTS, Spot, all_right, are, column, right
from tests.explorer.browser.views import show


def test_the_output(spot: Spot) -> None:
    """z of every head, what W_O makes of it, and their sum; what each head and each word that it reads adds."""
    page = spot.seen.opened
    show(page, "output")
    z, heads, out = (spot.of(f"{spot.part}.{name}") for name in ("z", "heads", "out"))
    weights, v = spot.of(f"{spot.part}.weights"), spot.seen.trace[f"{spot.at}.v"][0].double()
    matrix = spot.model.network.get_parameter(f"{spot.at}.out.weight").detach().double()
    v = v.repeat_interleave(len(z) // len(v), 0)
    brought = torch.einsum("hs,hsk,dhk,d->s", weights, v, matrix.reshape(len(out), len(z), -1), out / out.norm())

    def is_right() -> None:
        values = {"z, a row for each head": z, "z · W_O": heads, "out": out[None]}
        are(page.figures(), {label: value.tolist() for label, value in values.items()})
        adds = {name: value for name, *_, value, _ in page.rows("What each head adds")}
        for i, head in enumerate(heads):
            right(adds[f"head {i}"], head @ out / out.norm())
        words = page.rows("What each word brings")
        for (name, *_, value), share in zip(words, brought[brought.abs().argsort(descending=True)], strict=False):
            if "others" not in name and "Σ" not in name:
                right(value, share)

    eventually(is_right)


def answers(spot: Spot, edit: dict[str, Edit]) -> list[tuple[float, float]]:
    """The likeliest answer's share at each position, and what it is with the edits of addresses in the block."""
    edits = [{}, {f"{spot.block}.{name}": make for name, make in edit.items()}]
    was, now = (spot.seen.edited(one).detach().reshape(-1, spot.seen.logits.shape[-1]).softmax(-1) for one in edits)
    return [(float(a.max()), float(b[a.argmax()])) for a, b in zip(was, now, strict=True)]


def assert_told(page: Opened, what: str, falls: list[tuple[float, float]]) -> None:
    """The headline says what one of the answers would become."""
    headline = page.page.locator("main .headline").inner_text()
    told = re.search(what + r", “.+” would (?:go from (.+?) to (.+?)|stay at (.+?))\.(?: The|$)", headline)
    assert told is not None, headline
    was, now, same = told.groups()
    assert any(agrees(was or same, one) and agrees(now or same, other) for one, other in falls), (headline, falls)


def test_a_norm(spot: Spot) -> None:
    """How long every vector is before, normed and times its gain; x + f(x)."""
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
    normed = (x - mean) / spread
    after = normed * gain + shift
    close = float(torch.cosine_similarity(before, branch, dim=0))
    falls = answers(spot, {f"{spot.part}.out": zero})

    def is_right() -> None:
        long = {row[0]: row[1:] for row in page.rows("Norm: how long")}
        sizes = [float(one.norm()) for one in (x, normed, after)]
        assert any(all(map(agrees, cells, sizes)) for cells in long.values()), (long, sizes)
        said = page.page.locator("main p", has_text="cosine").first.inner_text()
        all_right(said.partition(").")[0], branch.norm() / before.norm(), math.degrees(math.acos(close)), close)
        assert_told(page, "If it added nothing", falls)

    eventually(is_right)


def test_the_mask_of_a_text_that_is_read_at_once(see) -> None:
    """What becomes of the answer if the block reads no later word; which cells that closes."""
    spot = spot_of(see, "filler")
    page = spot.seen.opened
    page.step("Mask")

    def later(scores: Tensor) -> Tensor:
        return scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -math.inf)

    falls = answers(spot, {"attn.scores": later})

    eventually(lambda: assert_told(page, "as in a writer", falls))
    n = len(spot.seen.trace[f"{spot.at}.scores"][0, 0])
    closed = n * (n - 1) // 2
    becomes(lambda: [*page.figures()["Scaled + M"].cells.values()].count("masked"), 0)
    page.page.get_by_role("button", name="later words closed").click()
    becomes(lambda: [*page.figures()["Scaled + M"].cells.values()].count("masked"), closed)
    said(page.page.locator("main .headline").inner_text, f"{closed} of {n * n} cells are closed.")
    assert len(page.fragment()["edits"]) == closed, "the answer beside it is that of the closed cells"
    page.page.get_by_role("button", name="as it is").click()
    becomes(lambda: [*page.figures()["Scaled + M"].cells.values()].count("masked"), 0)


def test_the_feed_forward(spot: Spot) -> None:
    """The most active units at every token, how many are on; the answer without each part, which leads."""
    page = spot.seen.opened
    show(page, "ffn")
    pre, post = spot.of("ffn.pre"), spot.of("ffn.post")
    parts = [name for name in spot.seen.trace if name.endswith(".ffn.out")]
    all_post = spot.seen.trace[f"{spot.block}.ffn.post"][0]

    def is_right() -> None:
        rows = page.rows("units")
        units = [int(row[0].split()[-1]) for row in rows]
        assert {abs(float(post[unit])) for unit in units} == {*post.abs().topk(len(units)).values.tolist()}
        peak = float(all_post[:, units].abs().max())
        for unit, (_, *cells) in zip(units, rows, strict=True):
            first = max(0, min(len(all_post) - 16, spot.t - 8))
            for shown, value in zip(cells, all_post[first : first + 16, unit], strict=True):
                assert agrees(shown, float(value)) if shown else abs(value) <= peak / 20, (unit, shown, value)
        told = page.page.locator("main .card h3:has-text('switches on')").inner_text()
        on = re.search(r"(\d+) of (\d+) units; unit (\d+) writes most, at (.+)\.", told)
        assert on is not None
        assert [int(one) for one in on.groups()[:3]] == [int((pre > 0).sum()), len(post), units[0]]
        assert agrees(on[4], float(post[units[0]]))
        said = page.page.locator("main .card h3:has-text('How likely') + p").inner_text().partition("now: ")[2]
        shares = [said.partition(". ")[0].rstrip(".")]
        of_parts = page.rows("How likely")
        shares += [row[1] for row in of_parts]
        places = [{}, *({at: zero} for at in parts)]
        logits = torch.stack(
            [spot.seen.edited(edit).detach().reshape(-1, spot.seen.logits.shape[-1]) for edit in places]
        ).softmax(-1)
        assert len(shares) == len(places)
        answers = [logits[:, t, logits[0, t].argmax()].tolist() for t in range(logits.shape[1])]
        found = [one for one in answers if all(map(agrees, shares, one))]
        assert found, shares
        was, *without = found[0]
        own, least = parts.index(f"{spot.block}.ffn.out"), without.index(min(without))
        if was - min(without) < 0.05 and len(parts) > 1:
            wanted, values = r"No block’s feed-forward .*: “.+” keeps at least (.+)\.", [min(without)]
        elif own == least:
            wanted, values = r"Without this feed-forward “.+” falls from (.+) to (.+); no other.*", [was, without[own]]
        else:
            name = re.escape(of_parts[least][0])
            wanted = (
                rf"Without the feed-forward of {name}, “.+” falls from (.+) to (.+); without this one it has (.+)\."
            )
            values = [was, without[least], without[own]]
        headline = page.page.locator("main .headline").inner_text()
        effect = re.fullmatch(wanted + r"(?: Swapped, most depends on .*)?", headline)
        assert effect is not None, (wanted, headline)
        assert all(map(agrees, effect.groups(), values)), (headline, values)

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
    """How long the token, its position and their sum are; which rows are near, and those that a click asks for."""
    page = spot.seen.opened
    show(page, "embedding")
    trace, t, stack = spot.seen.trace, spot.t, spot.stack
    model, figure = spot.model, page.page.locator("main figure", has_text="nearest to it")

    def is_right() -> None:
        if f"{stack}.embed.positions" in trace:
            (rows,) = page.tables("Word + position").values()
            sizes = [trace[f"{stack}.embed.{name}"][0, t].norm() for name in ("tokens", "positions", "sum")]
            for (name, *_), size in zip(rows, sizes, strict=True):
                right(name.rpartition(" ")[2], size)
        if spot.name == "seer":
            return
        begins = "▁" in page.page.locator(".ribbon [aria-pressed=true]").first.inner_text()
        table = token_table(model.network, stack)
        names, likes = figure.locator(".names span").all_inner_texts(), figure.locator(".ends span").all_inner_texts()
        token = next(i for i in range(len(table)) if model.tokenizer.tokens([i])[0].removeprefix("▁") == names[0])
        near = neighbours(table, token, k=36)
        named = zip(model.tokenizer.tokens(near.ids.tolist()), near.cosines, strict=True)
        whole = [one for one in named if not (begins and re.match(r"[^\W\d_]|▁[^\W\d_]$", one[0]))][:9]
        kept = [float(x) for name, x in whole if re.match(r"▁?[^\W\d_]", name)][:7]
        column([[like] for like in likes], [1, *kept])

    eventually(is_right)
    if spot.name != "seer":
        first = figure.locator(".names span").first.inner_text()
        rows = figure.locator(".cells")
        rows.click(position={"x": 30, "y": 1.5 * (rows.bounding_box() or {"height": 0})["height"] / 8})
        becomes(lambda: figure.locator(".names span").first.inner_text() != first, True)
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
        said(page.page.locator("main").inner_text, "cannot be told apart")
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
        words = [
            word.removeprefix("▁") for word in spot.model.tokenizer.tokens(lens.ids[layer, 0, int(position)].tolist())
        ]
        assert [word for word, *_ in rows] == words[: len(rows)]
        column(rows, lens.probabilities[layer, 0, int(position), : len(rows)])
        rest = [one for text in page.page.locator("main .detail p").all_inner_texts() for one in text.split(" · ")]
        assert [one.partition(" ")[0] for one in rest] == words[len(rows) :], "whose bar would not be seen"

    eventually(is_right)


def test_a_place_begins_where_it_is_seen_best_and_gives_back_what_was_chosen(open_page: Open) -> None:
    """The stream begins at the block that adds most; the next place has the block from before, and its own link."""
    opened = open_page("writer")
    show(opened, "heads")
    opened.quiet()
    before = opened.fragment()
    show(opened, "residual")
    block = opened.page.locator("main .headline b").inner_text().partition(",")[0]
    becomes(opened.page.locator("main svg .chosen").all_text_contents, [block.lower()])
    show(opened, "heads")
    becomes(opened.fragment, before)
