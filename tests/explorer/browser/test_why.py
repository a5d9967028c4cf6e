"""Why a head looks there, and which states carry the difference of two texts, against Python's numbers."""

import pytest

from clearhead.analysis.scores import ov_attribution, qk_attribution
from clearhead.analysis.sweep import PatchingSweep
from clearhead.explorer.answering.passes import LOCK
from clearhead.model import Tokens
from tests.explorer.browser.conftest import Open
from tests.explorer.browser.numbers import agrees, terms_agree
from tests.explorer.browser.page import Opened, becomes, eventually, fragment
from tests.explorer.browser.seeing import INPUTS
from tests.explorer.browser.views import show

CLEAN = INPUTS["writer"][0]


def batches(opened: Opened, *texts: str) -> list[list[Tokens]]:
    model = opened.served.model
    return [model.reader.inputs(text, None, model.generation) for text in texts]


@pytest.mark.parametrize("name", ["writer", "translator"])
def test_why_a_head_looks_there(open_page: Open, name: str) -> None:
    """The terms of the selected score, largest first, with links; what the head carries to the answer."""
    stack, part = ("decoder", "cross") if name == "translator" else ("decoder", "attn")
    at = {"stack": stack, "part": part, "layer": 1, "head": 1, "query": 3, "key": 1}
    opened = open_page(name, fragment(*INPUTS[name], view="attention", **at))
    model, cell = opened.served.model, f"{stack}.blocks.1.{part}.scores[h=1,t=3,s=1]"
    opened.button("Why it looks there: terms").click()
    with LOCK:
        given = model.reader.inputs(*INPUTS[name], model.generation)
        expected = qk_attribution(model.network, given, cell)
        logit = int(model.network(*given)[0, 3].argmax())
        carried = ov_attribution(model.network, given, cell.replace("scores", "weights"), logit)

    eventually(lambda: terms_agree(opened.rows, expected, carried))
    link = opened.page.locator(".why button.link").filter(has_text="FFN 0").first
    link.click()
    becomes(lambda: opened.fragment().get("view"), "ffn")


def test_a_sweep(open_page: Open) -> None:
    """Every row of the heatmap; a cell opens its state, and becomes an edit of B."""
    corrupt = "six seven two nine ten one"
    opened = open_page("writer", fragment(CLEAN, view="attention"))
    show(opened, "patching")
    opened.page.get_by_label("Corrupt (B):").fill(corrupt)
    opened.page.get_by_label("Corrupt (B):").press("Enter")
    opened.settled()
    network, given = opened.served.model.network, batches(opened, CLEAN, corrupt)
    with LOCK:
        (wanted,), (other,) = (network(*one)[:, -1].topk(2).indices for one in given)
        answer = int(wanted[0])
        minus = next(int(i) for i in other if int(i) != answer)
        sweep = PatchingSweep(network, given[0], given[1], answer, minus=minus)
        expected = {at: sweep.row(at).restored for part in ("resid", "heads") for at in sweep.sites(part)}

    opened.page.get_by_text("Both texts answer").wait_for()
    opened.page.get_by_label("minus that of").select_option(str(minus))

    def are_rows(value: str) -> None:
        table = opened.figures().get(f"decoder {value}")
        assert table
        n = len(expected[f"decoder.blocks.0.{value}"])
        for row, block in enumerate((1, 0)):
            cells = [table.cells.get((row, i), "") for i in range(n)]
            restored = expected[f"decoder.blocks.{block}.{value}"].tolist()
            assert all(map(agrees, cells, restored)), (cells, restored)

    eventually(lambda: are_rows("resid_pre"))
    opened.button("Heads", "main").click()
    eventually(lambda: are_rows("attn.z"))
    opened.button("Residual stream", "main").click()
    eventually(lambda: are_rows("resid_pre"))
    opened.page.locator("main td[data-row='1'][data-col='2']").click()
    opened.button("Apply as an edit of B").click()
    patch = ("decoder.blocks.0.resid_pre[t=2]", "patch")
    becomes(lambda: [(one["at"], one["do"]) for one in opened.fragment()["edits"]], [patch])
    opened.settled()
    assert agrees(opened.page.locator(".cell p").inner_text().split()[3], 1.0), "the only token that differs"
    opened.button("Open this state").click()
    becomes(lambda: opened.fragment().get("view"), "residual")
