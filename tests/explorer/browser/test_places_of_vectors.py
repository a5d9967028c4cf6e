"""Numbers of vectors, positions and the scale of scores against Python's, by the formulas of the papers."""

import math
import re
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.explorer.browser.conftest import spot_of
from tests.explorer.browser.numbers import mismatches
from tests.explorer.browser.page import eventually
from tests.explorer.browser.seeing import INPUTS, Seen, Spot, all_right, are, column, right
from tests.explorer.browser.views import show

Array = NDArray[np.float64]


def array(tensor: Tensor) -> Array:
    return tensor.detach().double().numpy()


# --- geometry ---------------------------------------------------------------------------------------------------


def test_states_as_points(spot: Spot) -> None:
    """How far every word is from the chosen one, before and after; how far that one turned; of unit vectors too."""
    page = spot.seen.opened
    show(page, "geometry")
    trace = spot.seen.trace
    begin, end = (array(trace[f"{spot.stack}.blocks.{at}"][0]) for at in ("0.resid_pre", f"{spot.layer}.resid_post"))
    before = array(trace[f"{spot.block}.resid_pre"][0])

    def is_right(begin: Array, end: Array) -> None:
        if spot.name == "seer":
            words = list(range(len(end)))
        else:
            chips = page.page.locator(".ribbon .chips")
            buttons = (chips.last if spot.stack == "decoder" else chips.first).get_by_role("button").all()
            marks = ["mark" in (one.get_attribute("class") or "").split() for one in buttons]
            words = [i for i, one in enumerate(buttons) if not marks[i] and any(map(str.isalnum, one.inner_text()))]
        words = list(range(len(end))) if len(words) < 3 else words
        cosine = begin[spot.t] @ end[spot.t] / np.linalg.norm(begin[spot.t]) / np.linalg.norm(end[spot.t])
        told = page.page.locator("main p.small", has_text="turned by").inner_text()
        right(told.partition(" turned by ")[2].partition("°")[0], float(np.degrees(np.arccos(cosine))))
        was, now = (np.linalg.norm(x[:, None] - x[None], axis=-1) for x in (begin, end))
        others = [i for i in words if i != spot.t]
        rows = page.rows("How far each word is")
        column(rows, was[spot.t, others].tolist(), -2)
        column(rows, now[spot.t, others].tolist(), -1)
        left = [now[pair] / was[pair] for pair in combinations(words, 2) if was[pair]]
        mean = sum(left) / len(left)
        nearer = [i for i in others if now[spot.t, i] < was[spot.t, i]]
        near = 2 * len(nearer) >= len(others)
        most = (min if near else max)(others, key=lambda i: now[spot.t, i] / was[spot.t, i])
        looks = trace[f"{spot.block}.attn.weights"][0, :, spot.t, most]
        pair = was[spot.t, most], now[spot.t, most]
        said = page.page.locator("main .headline").inner_text()
        first, *rest = re.split(r"(?<=\.) +", re.sub("“[^”]*”", "", said))
        count = len(nearer) if near else len(others) - len(nearer)
        all_right(first, count, len(others), abs(1 - pair[1] / pair[0]), *pair)
        expected = [[looks.max(), int(looks.argmax())]] if near and looks.max() > 0.3 else []
        assert ("closer on average" in told) == (near and mean < 1), told
        if near and mean < 1:
            right(told.partition(" come ")[2].partition(" closer")[0], 1 - mean)
        for text, numbers in zip(rest, expected, strict=True):
            all_right(text, *numbers)

    unit = page.page.get_by_label("directions only")
    eventually(partial(is_right, *(x / np.linalg.norm(x, axis=1, keepdims=True) for x in (begin, end))))
    unit.uncheck()
    eventually(partial(is_right, begin, end))
    page.button("from the block before", "main").click()
    eventually(partial(is_right, before, end))
    unit.check()
    eventually(partial(is_right, *(x / np.linalg.norm(x, axis=1, keepdims=True) for x in (before, end))))


# --- positions --------------------------------------------------------------------------------------------------


def cosines(rows: Array) -> Array:
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit @ unit.T


def sinusoids(n: int, width: int) -> Array:
    """PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i + 1) = cos of the same   (Vaswani et al. 2017, 3.5)"""
    angles = np.arange(n)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(n, width)


@pytest.mark.parametrize("name", INPUTS)
def test_vectors_of_positions(see, name: str) -> None:
    """Every component, and how like the others the chosen one is."""
    spot = spot_of(see, name, dim=3)
    page = spot.seen.opened
    show(page, "position")
    n = len(spot.seen.trace[f"{spot.stack}.embed.sum"][0])
    if name == "translator":
        table = sinusoids(n, 16)
    else:
        table = array(spot.model.network.get_parameter(f"{spot.stack}.positions.table.weight"))[:n]
    alike = cosines(table)

    def is_right() -> None:
        figures = page.figures()
        assert mismatches(figures["Position vectors"].cells, table.tolist()) == []
        assert len(figures["Position vectors"].cells) == min(32, len(table)) * table.shape[1]
        near = page.page.locator("main .ends span").all_inner_texts()
        all_right(" ".join(near), *alike[spot.t])

    eventually(is_right)


def changed(see, positions: str) -> tuple[Seen, Any]:
    """The translator with other positions beside it, and Python's trace of that."""
    place = {"stack": "decoder", "part": "attn", "layer": 1, "head": 1, "query": 3, "key": 1}
    seen: Seen = see("translator", **place, side="b", change={"positions": positions})
    return seen, seen.served.traced(seen.served.model.changed(positions=positions), *seen.given)[0]


def test_turned_pairs(see) -> None:
    """RoPE: pairs of q and k before and after, and what their product does as positions move   (Su et al. 2021, 3.2)"""
    seen, trace = changed(see, "rotary")
    page, network = seen.opened, seen.served.model.network
    show(page, "position")
    x = array(trace["decoder.blocks.1.attn_norm.out"][0])
    q, k = (projected(network, x[t], name) for t, name in ((3, "q"), (1, "k")))
    theta = 10000.0 ** (-np.arange(0, 8, 2) / 8)

    def turned(vector: Array, position: int) -> Array:
        """The first half of a head pairs with the second: as complex numbers."""
        pairs = (vector[:4] + 1j * vector[4:]) * np.exp(1j * position * theta)
        return np.concatenate([pairs.real, pairs.imag])

    def score(query: int, key: int) -> float:
        return float(turned(q, query) @ turned(k, key))

    assert np.allclose(turned(q, 3), array(trace["decoder.blocks.1.attn.q[h=1,t=3]"][0]), atol=1e-5)

    def is_right() -> None:
        pairs = page.page.locator("main .pairs figure")
        assert pairs.count() == 4
        for i, pair in enumerate(pairs.all()):
            names, adds = pair.locator("figcaption").inner_text().split("\n")
            said = (pair.get_by_role("img").get_attribute("aria-label") or "").partition("θ = ")[2]
            after, beside = turned(q, 3), turned(k, 1)
            assert names.strip() == f"{i}, {i + 4}"
            right(adds, after[i] * beside[i] + after[i + 4] * beside[i + 4])
            all_right(said, theta[i], q[i], q[i + 4], after[i], after[i + 4])
        right(page.page.locator("main .score b").inner_text(), score(3, 1))
        curve = page.tables("If only the key moves")["Head 1"]
        column(curve, [score(0, distance) for distance in range(-16, 1)])

    eventually(is_right)


def projected(network: Any, x: Array, name: str) -> Array:
    """Head 1 of q or k, from the weights."""
    weight, *bias = (
        array(value) for key, value in network.named_parameters() if key.startswith(f"decoder.blocks.1.attn.{name}.")
    )
    whole = weight @ x + (bias[0] if bias else 0)
    return whole[8:16]


def test_biases_of_scores(see) -> None:
    """ALiBi: each head takes its own slope times the distance from its scores   (Press et al. 2021)"""
    seen, trace = changed(see, "alibi")
    page = seen.opened
    show(page, "position")
    slopes = [2.0 ** (-8 * (head + 1) / 2) for head in (0, 1)]
    there = torch.arange(5)
    distance = (there - there[:, None]).abs().double()
    scores = trace["decoder.blocks.1.attn.q"].double() @ trace["decoder.blocks.1.attn.k"].double().mT / math.sqrt(8)
    masked = trace["decoder.blocks.1.attn.masked[h=1]"][0].double()
    expected = (scores[0, 1] - slopes[1] * distance).tril()
    assert torch.allclose(expected, masked.tril(), atol=1e-5)

    def is_right() -> None:
        curves = page.tables("Bias by distance")
        assert sorted(curves) == ["Head 0", "Head 1"]
        for head, slope in enumerate(slopes):
            column(curves[f"Head {head}"], [slope * away for away in range(-63, 1)])
        bias = (-slopes[1] * distance).masked_fill(distance.triu(1) > 0, -math.inf)
        are(page.figures(), {"Bias": bias.tolist()})
        right(page.page.locator("main p.small", has_text="gets").inner_text().partition("gets ")[2], -slopes[1] * 2)

    eventually(is_right)


# --- the scale of scores ----------------------------------------------------------------------------------------


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def test_the_scale_of_this_text(spot: Spot) -> None:
    """The row for which the division matters most."""
    page = spot.seen.opened
    show(page, "scale")
    q, k = (array(spot.seen.trace[f"{spot.at}.{x}[h=0]"][0]) for x in "qk")
    product, factor = q @ k.T, 1 / math.sqrt(q.shape[1])
    is_open = np.tri(len(product), dtype=bool) if spot.name == "writer" else np.ones_like(product, dtype=bool)
    rows_of = [[softmax(one[keys] * by) for by in (factor, 1)] for one, keys in zip(product, is_open, strict=True)]
    scaled, unscaled = max(rows_of, key=lambda one: one[1].max() - one[0].max())

    def is_right() -> None:
        most = page.page.locator("main p.lead").inner_text().rpartition("”")[2]
        all_right(most, scaled[unscaled.argmax()], unscaled.max())

    eventually(is_right)
