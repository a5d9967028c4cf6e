"""Places that analyse, against Python, served and in files: scores, patching, circuits and features."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import torch

from clearhead.analysis.circuits import Circuits, curve, patched_edges
from clearhead.analysis.features import Features, Site
from clearhead.analysis.scores import ov_attribution, qk_attribution
from clearhead.analysis.sweep import PatchingSweep
from clearhead.api import Model
from clearhead.api.circuits import circuits_of
from clearhead.api.features import attach
from clearhead.explorer.answering.passes import LOCK
from clearhead.explorer.answering.questions import RunRequest
from clearhead.explorer.recording.tokens import read
from clearhead.trace import zero
from tests.explorer.browser.checks import fits, violations
from tests.explorer.browser.conftest import Open, Serve
from tests.explorer.browser.numbers import agrees, terms_agree
from tests.explorer.browser.page import Opened, Served, becomes, eventually, fragment, said
from tests.explorer.browser.seeing import INPUTS, SOURCE, TARGET, all_right, right
from tests.small_models import model_of

if TYPE_CHECKING:
    from playwright.sync_api import Locator

TEXT, OTHER = "one two three", "one five three"
AT = "decoder.blocks.0.resid_post"
CLEAN, CORRUPT = INPUTS["writer"][0], "six seven two nine ten one"


# --- one score, and the states of two texts ---------------------------------------------------------------------


@pytest.mark.parametrize(("where", "name"), [("page", "writer"), ("page", "translator"), ("file", "translator")])
def test_why_a_head_looks_there(open_place: Open, serve_input: Callable[[str], Served], where: str, name: str) -> None:
    """The terms of the selected score, largest first, with links; what the head carries to the answer."""
    stack, part = ("decoder", "cross") if name == "translator" else ("decoder", "attn")
    at = {"stack": stack, "part": part, "layer": 1, "head": 1, "query": 3, "key": 1}
    served, cell = serve_input(name), f"{stack}.blocks.1.{part}.scores[h=1,t=3,s=1]"
    opened = open_place(where, served, fragment(*INPUTS[name], view="attention", **at))
    opened.button("Why does it look there?").focus()
    opened.press("Enter")
    model = served.model
    with LOCK:
        given = model.reader.inputs(*INPUTS[name], model.generation)
        expected = qk_attribution(model.network, given, cell)
        logit = int(model.network(*given)[0, 3].argmax())
        carried = ov_attribution(model.network, given, cell.replace("scores", "weights"), logit)
    eventually(lambda: terms_agree(opened.rows, expected, carried))
    assert violations(opened.page) == []
    fits(opened.page)
    opened.page.locator(".why button.link").filter(has_text="feed-forward 0").first.click()
    becomes(lambda: opened.fragment().get("view"), "ffn")


@pytest.mark.parametrize("where", ["page", "file"])
def test_a_sweep(open_place: Open, serve_input: Callable[[str], Served], where: str) -> None:
    """Every row of the heatmap; a cell opens its state, and becomes an edit of B."""
    served = serve_input("writer")
    state = fragment(CLEAN, view="patching", other={"text": CORRUPT, "target": None})
    opened = open_place(where, served, state, other=RunRequest(text=CORRUPT))
    model = served.model
    with LOCK:
        given = [model.reader.inputs(text, None, model.generation) for text in (CLEAN, CORRUPT)]
        (wanted,), (other,) = (model.network(*one)[:, -1].topk(2).indices for one in given)
        answer = int(wanted[0])
        minus = next(int(i) for i in other if int(i) != answer)
        sweep = PatchingSweep(model.network, given[0], given[1], answer, minus=minus)
        expected = {at: sweep.row(at).restored.tolist() for part in ("resid", "heads") for at in sweep.sites(part)}
    opened.page.get_by_label("minus that of").select_option(str(minus))

    def are_rows(value: str, title: str) -> None:
        cells = opened.figures()[f"Decoder · {title}"].cells
        for row, block in enumerate((1, 0)):
            restored = expected[f"decoder.blocks.{block}.{value}"]
            assert all(agrees(cells.get((row, i), ""), x) for i, x in enumerate(restored)), (cells, restored)

    for button, *of in (("Heads", "attn.z", "self-attention"), ("Residual stream", "resid_pre", "stream")):
        opened.button(button, "main").click()
        eventually(lambda of=of: are_rows(*of))
    opened.page.locator("main td[data-row='1'][data-col='2']").click()
    opened.button("Apply as an edit of B").click()
    patch = ("decoder.blocks.0.resid_pre[t=2]", "patch")
    becomes(lambda: [(one["at"], one["do"]) for one in opened.fragment().get("edits", [])], [patch])
    opened.settled()
    assert agrees(opened.page.locator(".cell p").inner_text().split()[3], 1.0), "the only token that differs"
    opened.button("Open this state").click()
    becomes(lambda: opened.fragment().get("view"), "residual")


# --- circuits ---------------------------------------------------------------------------------------------------


def find(opened: Opened, corrupt: str) -> Locator:
    """Asks for a circuit, and waits until all of it is there; its edges."""
    form = opened.page.locator("main form")
    form.locator("input").first.fill(corrupt)
    if form.locator("button").is_enabled():
        form.locator("button").click()
        opened.quiet()
    opened.page.locator("main .number").wait_for(state="attached")
    opened.page.locator("main .controls progress").wait_for(state="detached")
    return opened.page.locator("main ul[aria-label^='Connections'] button")


def score_of(row: Locator) -> str:
    return (row.get_attribute("title") or "").rsplit(": ", 1)[1]


def card_shows(opened: Opened, circuits: Circuits, writer: str, reader: str) -> None:
    """The card of an edge says what patching it measures."""
    card = opened.page.locator("section.card", has_text="How this score was made")
    card.locator("tbody").first.wait_for()
    with LOCK:
        exact = patched_edges(circuits, [(writer, reader)])[writer, reader]
    eventually(lambda: right(card.locator("p.small").first.inner_text().rstrip(".").split()[-1], exact))


@pytest.mark.parametrize("where", ["page", "file"])
def test_the_circuit_of_two_texts(open_place: Open, serve_input: Callable[[str], Served], where: str) -> None:
    served, other = serve_input("translator"), "seven six nine one"
    last = fragment(SOURCE, TARGET, view="circuits", position=len(TARGET.split()))
    opened = open_place(where, served, last, corrupt=RunRequest(text=other))
    rows = find(opened, other)
    with LOCK:
        clean, corrupt = (read(served.model, text, TARGET).inputs for text in (SOURCE, other))
        circuits, _ = circuits_of(served.model, clean, [corrupt[0], clean[1]])
        top = circuits.edges().top(40)
    numbers = (opened.page.locator("main .number").text_content() or "").split(": ")[-1].split()
    right(numbers[0], circuits.ends[0])
    right(score_of(rows.first), top[0].score)
    slider = opened.page.get_by_role("slider", name="Connections kept")
    total = int(circuits.edges().exists.sum())
    for place, share in enumerate((10 / total, 25 / total)):
        with LOCK:
            point = next(curve(circuits, circuits.edges(), (share,)))
        slider.fill(str(place))
        found = rf"strongest {point.n_edges} of {total} .* {100 * (point.faithfulness or 0):.0f}\s%".replace("-", "−")
        said(
            lambda found=found: "".join(re.findall(found, opened.page.locator("main h3.found").inner_text())),
            "strongest",
        )
    rows.first.focus()
    for i in (0, 1):
        opened.press("Enter")
        score = score_of(rows.nth(i))
        edge = next(one for one in top if agrees(score, one.score))
        card_shows(opened, circuits, edge.writer, edge.reader)
        opened.press("ArrowDown")
    assert violations(opened.page) == []
    fits(opened.page)
    if where == "file":
        opened.page.locator("main form input").fill("one two nine one")
        opened.page.locator("main form button").click()
        gap = said(opened.page.locator("main .gap").first.inner_text, f"holds this for “{SOURCE}” / “{other}” (t = ")
        assert "clearhead explore " in gap


def test_a_file_without_a_second_text_lists_no_circuits(open_place: Open, serve_input: Callable[[str], Served]) -> None:
    opened = open_place("file", serve_input("translator"), "")
    assert opened.page.locator("nav.left").get_by_role("button", name="Circuits").count() == 0
    opened.go_to(fragment(SOURCE, TARGET, view="circuits"))
    assert "takes the model in Python" in opened.page.locator("main .gap").inner_text()


def test_feed_forwards_off_and_as_on_another_text(open_place: Open, serve_input: Callable[[str], Served]) -> None:
    """Whether the answer needs each, and whether it carries what differs: what a circuit draws is the second."""
    served, other, position = serve_input("translator"), "seven six nine one", 2
    place = fragment(SOURCE, TARGET, view="ffn", position=position)
    opened = open_place("file", served, place, corrupt=RunRequest(text=other))
    trace, logits = served.trace(SOURCE, TARGET)
    values = served.trace(other, TARGET)[0]
    best = int(logits[position].argmax())
    parts = [name for name in trace if name.endswith(".ffn.out")]
    edits = [[{at: zero}, {at: values[at]}] for at in parts]
    shares = [[served.trace(SOURCE, TARGET, edit=one)[1][position].softmax(-1)[best] for one in row] for row in edits]

    def is_right() -> None:
        rows = opened.rows("How likely")
        assert len(rows) == len(shares)
        for row, expected in zip(rows, shares, strict=True):
            all_right(" ".join(row[1:]), *expected)

    eventually(is_right)


# --- features ---------------------------------------------------------------------------------------------------


def with_features() -> Model:
    model = model_of("nano", n_layers=2)
    torch.manual_seed(0)
    sizes = torch.randn(16, 40), torch.zeros(40), torch.randn(40, 16), torch.zeros(16)
    attach(model.network, Features(Site(AT, AT), *sizes, k=6, source="'features/stream', model.network"))
    return model


@pytest.fixture(scope="module")
def featured(serve: Serve) -> Served:
    return serve("featured", with_features(), text=TEXT)


@pytest.mark.parametrize("where", ["page", "file", "large file"])
def test_features_of_a_token_and_an_edit_of_one(featured: Served, open_place: Open, where: str) -> None:
    """A file has those of each token of its text, without a slider."""
    opened = open_place(where, featured, fragment(TEXT, view="features", stack="decoder", query=1))
    page = opened.page

    def becomes_those_of(**edit: float) -> torch.Tensor:
        row = featured.trace(TEXT, edit=edit)[0][f"{AT}.features"][0, 1]
        order = [i for i in row.topk(6).indices.tolist() if row[i] > 0]

        def is_right() -> None:
            rows = opened.rows("Active at ▁two")
            assert [int(cells[0]) for cells in rows][: len(order)] == order
            assert all(agrees(cells[2].split()[0], float(row[i])) for cells, i in zip(rows, order, strict=False))

        eventually(is_right)
        return row

    strongest = int(becomes_those_of().argmax())
    assert violations(page) == []
    fits(page)
    slider = page.get_by_role("slider", name=f"Feature {strongest} at ▁two")
    if where != "page":
        assert slider.count() == 0
        return
    slider.fill(str(float(slider.get_attribute("max") or 0)))
    at = f"{AT}.features[f={strongest},t=1]"
    becomes(lambda: [edit["at"] for edit in opened.fragment().get("edits", [])], [at])
    opened.quiet()
    becomes_those_of(**{at: opened.fragment()["edits"][0]["value"]})
    page.get_by_role("button", name="Switch it off").click()
    becomes_those_of(**{at: 0.0})
    page.get_by_role("button", name="As it was").click()
    becomes_those_of()


def test_features_are_parts_and_an_edge_opens_one(featured: Served, open_page: Open) -> None:
    """The strongest edge to a feature: its numbers are Python's, and its name opens the feature where it matters."""
    opened = open_page(featured, fragment(TEXT, view="circuits"))
    rows, page, own = find(opened, OTHER), opened.page, featured.model.network.attached[0]
    assert isinstance(own, Features)
    with LOCK:
        inputs = [read(featured.model, text).inputs for text in (TEXT, OTHER)]
        circuits, _ = circuits_of(featured.model, *inputs, features=[own])
        best = next(edge for edge in circuits.edges().top() if edge.reader.startswith(f"{own.address}["))
        shares = circuits.nodes().positions[best.reader]
    every = page.get_by_role("slider", name="Connections kept")
    every.fill(str(every.get_attribute("max")))
    page.get_by_role("button", name=re.compile(r"^all \d")).click()
    number = int(best.reader.partition("=")[2][:-1])
    edges = rows.filter(has_text=re.compile(rf"→ Decoder 0 · resid_post · feature {number}\b"))
    right(score_of(edges.first), best.score)
    edges.first.click()
    card_shows(opened, circuits, best.writer, best.reader)
    page.locator("section.card").get_by_role("button", name=f"feature {number}").click()
    becomes(lambda: opened.fragment().get("view"), "features")
    state, at = opened.fragment(), int(shares.abs().argmax())
    assert (state["feature"], int(state.get("query", 0))) == (str(number), at)
    page.get_by_role("slider", name=f"Feature {number} at").wait_for()
    opened.follow(fragment(TEXT, view="circuits"))
    find(opened, OTHER)
    page.get_by_text("How it is found").click()
    page.get_by_role("checkbox", name="features as parts").uncheck()
    becomes(page.get_by_text("resid_post · feature").count, 0)
