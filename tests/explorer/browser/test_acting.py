"""What a reader changes on the page changes what the model says, as the same change does in Python."""

import contextlib
import io
import math
import runpy
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.api import Model, load
from clearhead.explorer.answering.passes import LOCK
from clearhead.trace import Edit, zero
from tests.explorer.browser.conftest import Open, Serve
from tests.explorer.browser.numbers import agrees
from tests.explorer.browser.page import Opened, Served, becomes, eventually, fragment
from tests.explorer.browser.seeing import IMAGE, INPUTS, SOURCE, TARGET, says

POSITION = 2


@pytest.fixture
def translator(open_page: Open) -> Opened:
    return open_page("translator", fragment(SOURCE, TARGET, stack="decoder", part="cross", layer=1, position=POSITION))


def logits_of(served: Served, edit: Mapping[str, Edit] | None = None, model: Model | None = None) -> Tensor:
    """Of the translator's input, at the chosen position."""
    with LOCK:
        return (model or served.model).trace(SOURCE, TARGET, edit=edit)[1][POSITION]


# --- one head off, in three ways --------------------------------------------------------------------------------


def without_columns(model: Model, block: str, head: int) -> None:
    """Take a head's columns out of W_O: nothing of it gets any further."""
    weight = model.network.get_parameter(f"{block}.out.weight")
    width = weight.shape[1] // 2
    with torch.no_grad():
        weight[:, head * width : (head + 1) * width] = 0


def in_python(code: str, folder: Path) -> str:
    """What a program that the page wrote prints."""
    (folder / "copied.py").write_text(code, encoding="utf-8")
    printed = io.StringIO()
    with LOCK, contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        runpy.run_path("copied.py", run_name="__main__")
    return printed.getvalue()


def topk(printed: str) -> tuple[list[float], list[int]]:
    """What `print(logits.topk(5))` says, read as text."""
    values, indices = (printed.split(f"{name}=tensor([")[1].split("]")[0] for name in ("values", "indices"))
    return [float(x) for x in values.split(",")], [int(i) for i in indices.split(",")]


@pytest.mark.parametrize(
    ("stack", "part", "layer", "head"),
    [
        ("encoder", "attn", 0, 1),
        pytest.param("decoder", "attn", 1, 0, marks=pytest.mark.slow),
        ("decoder", "cross", 1, 1),
    ],
)
def test_a_head_off_by_the_switch_by_the_code_and_by_its_weights(
    translator: Opened, tmp_path: Path, stack: str, part: str, layer: int, head: int
) -> None:
    """The same five likeliest words, with the same probabilities."""
    block = f"{stack}.blocks.{layer}.{part}"
    translator.choose(stack, layer, part, head)
    plain = logits_of(translator.served)
    says(translator, plain)
    translator.button("off", ".change").click()
    translator.button("Research").click()

    copy = load(translator.served.session.name)
    without_columns(copy, block, head)
    removed = logits_of(translator.served, model=copy)
    says(translator, plain, removed)
    assert not torch.allclose(plain.softmax(-1), removed.softmax(-1), atol=1e-4), "this head does nothing here"

    code = translator.code()
    assert f"{block}.z[h={head}]" in code
    p, ids = topk(in_python(code, tmp_path))
    expected = removed.softmax(-1).topk(5)
    assert ids == expected.indices.tolist()
    assert p == pytest.approx(expected.values.tolist(), abs=1e-4)
    shown = {word: b for word, _, b in translator.chances()}
    for i, share in zip(ids, p, strict=True):
        word = translator.served.model.tokenizer.tokens([i])[0]
        assert word not in shown or agrees(shown[word] or "", share)


@pytest.mark.parametrize("name", ["seer", *(pytest.param(n, marks=pytest.mark.slow) for n in ("writer", "filler"))])
def test_a_head_off_in_other_models(open_page: Open, serve: Serve, name: str) -> None:
    served = serve(name)
    stack = "decoder" if name == "writer" else "encoder"
    text, target = INPUTS[name]
    state = {"image": "example:0"} if name == "seer" else {"position": POSITION}
    opened = open_page(served, fragment(text, target, stack=stack, layer=1, head=1, **state))
    opened.button("off", ".change").click()
    given = IMAGE if name == "seer" else text
    at = f"{stack}.blocks.1.attn.z[h=1]"
    rows = [served.trace(given)[1], served.trace(given, edit={at: zero})[1]]
    a, b = rows if name == "seer" else [row[POSITION] for row in rows]
    says(opened, a, b)


# --- every other change, against the same in Python -------------------------------------------------------------


AT = "decoder.blocks.1.cross"


def row_of(served: Served, query: int) -> Tensor:
    return served.trace(SOURCE, TARGET)[0][f"{AT}.weights[h=0,t={query}]"][0]


@pytest.mark.parametrize("renormalise", [True, False])
def test_a_weight_by_the_slider(translator: Opened, renormalise: bool) -> None:
    query, key, share = 2, 1, 0.75
    translator.go_to(
        fragment(SOURCE, TARGET, stack="decoder", part="cross", layer=1, position=POSITION, query=query, key=key)
    )
    translator.unfold()
    if not renormalise:
        translator.page.get_by_label("keep the row’s sum at 1").uncheck()
    translator.page.locator("#weight").fill(str(share))
    row = row_of(translator.served, query)
    others = torch.arange(len(row)) != key
    new = torch.where(others, row * (1 - share) / row[others].sum(), share) if renormalise else row.clone()
    new[key] = share
    edited = logits_of(translator.served, {f"{AT}.weights[h=0,t={query}]": new})
    says(translator, logits_of(translator.served), edited)
    becomes(lambda: len(translator.fragment().get("edits", [])), 1)  # The page writes its link a moment later.
    translator.button("undo", ".heading").click()
    says(translator, logits_of(translator.served))


def test_a_number_by_typing(translator: Opened) -> None:
    translator.page.locator("main .a td[data-row='1'][data-col='3']").click()
    translator.unfold()
    cell = translator.page.locator("#cell")
    address = translator.page.locator(".change .address")
    becomes(address.inner_text, f"{AT}.weights[h=0,t=1,s=3]")
    row = row_of(translator.served, 1)
    assert agrees(cell.get_attribute("placeholder") or "", float(row[3]))
    for typed, value in (("0.5", 0.5), ("−2", -2.0), ("25,5", 25.5), ("1e-3", 1e-3)):
        cell.fill(typed)
        cell.press("Enter")
        edited = logits_of(translator.served, {f"{AT}.weights[h=0,t=1,s=3]": value})
        says(translator, logits_of(translator.served), edited)
    for nonsense in ("", "abc", "1,5,2", "NaN", "Infinity"):
        cell.fill(nonsense)
        cell.press("Enter")
        translator.settled()
        assert (cell.input_value(), cell.get_attribute("aria-invalid")) == (nonsense, "true")
        says(translator, logits_of(translator.served), edited)
    assert translator.alert is None


def test_a_block_off(translator: Opened) -> None:
    translator.switch("Block 1").click()
    edit = {f"decoder.blocks.1.{branch}.out": zero for branch in ("attn", "cross", "ffn")}
    says(translator, logits_of(translator.served), logits_of(translator.served, edit))
    translator.switch("Block 1").click()
    says(translator, logits_of(translator.served))


@pytest.mark.parametrize(
    "change",
    [{"scale": False}, {"positions": "rotary"}, pytest.param({"positions": "none"}, marks=pytest.mark.slow)],
)
def test_another_network_over_the_same_weights(translator: Opened, change: dict[str, Any]) -> None:
    if "scale" in change:
        translator.switch("Scale").click()
    else:
        translator.step("+ Position")
        translator.button({"rotary": "RoPE", "none": "none"}[change["positions"]], ".change").click()
    other = translator.served.model.changed(**change)
    says(translator, logits_of(translator.served), logits_of(translator.served, model=other))


def test_undo_redo_and_reset(translator: Opened) -> None:
    """Each step back shows what was there before it."""
    plain = logits_of(translator.served)
    first = logits_of(translator.served, {f"{AT}.z[h=0]": zero})
    both = logits_of(translator.served, {f"{AT}.z[h=0]": zero, f"{AT}.z[h=1]": zero})
    translator.button("off", ".change").click()
    says(translator, plain, first)
    translator.choose("decoder", 1, "cross", 1)
    translator.button("off", ".change").click()
    says(translator, plain, both)
    translator.button("undo", ".heading").click()
    says(translator, plain, first)
    translator.page.locator(".heading .name").click()
    translator.press("u")
    says(translator, plain)
    translator.press("r")
    says(translator, plain, first)
    translator.press("r")
    says(translator, plain, both)
    translator.button("reset", ".heading").click()
    says(translator, plain)
    translator.press("u")
    says(translator, plain, both)


def test_sides(translator: Opened) -> None:
    """A, B and B - A of the same matrix."""
    translator.choose("decoder", 1, "cross", 0)
    translator.page.locator("main .a td[data-row='1'][data-col='3']").click()
    translator.unfold()
    cell = translator.page.locator("#cell")
    cell.fill("0.9")
    cell.press("Enter")
    translator.settled()
    plain = translator.served.trace(SOURCE, TARGET)[0][f"{AT}.weights[h=0]"][0]
    edited = plain.clone()  # The row keeps its sum.
    edited[1] *= 0.1 / (1 - plain[1, 3])
    edited[1, 3] = 0.9

    def shows(values: Tensor) -> None:
        cells = translator.figures()["Weights"].cells
        assert all(agrees(text, float(values[at])) for at, text in cells.items())

    sides = translator.page.get_by_role("group", name="Which run is shown")
    for name, values in (("A  as trained", plain), ("B  1 edit", edited), ("B − A", edited - plain)):
        sides.get_by_role("button", name=name).click()
        eventually(partial(shows, values))
    assert not math.isclose(float(edited[1, 3]), float(plain[1, 3]))


def test_two_sentences_and_a_patch(translator: Opened) -> None:
    """B reads another text; then one head of it takes A's value."""
    source, target = "five two nine one", TARGET
    plain = logits_of(translator.served)
    translator.button("+ compare").click()
    translator.page.get_by_label("Second text, to compare").fill(source)
    translator.page.get_by_label("Second text, to compare").press("Enter")
    translator.settled()
    translator.page.locator(".ribbon .chips").last.get_by_role("button").nth(POSITION).click()
    written = translator.served.model.translate([source])[0]
    other = translator.served.trace(source, written)[1][POSITION]
    says(translator, plain, other)
    translator.button("Research").click()
    translator.choose("encoder", 1, "attn", 0)
    translator.button("Patch head 1.0 of B with A’s value", ".research").click()
    translator.settled()
    at = "encoder.blocks.1.attn.z[h=0]"
    taken = translator.served.trace(SOURCE, TARGET)[0][at]
    translator.step("Logits → word")
    target = translator.page.locator(".ribbon .chips").last.locator("button b").all_inner_texts()[1:]
    patched = translator.served.trace(source, " ".join(word.lstrip("▁") for word in target), edit={at: taken})[1]
    says(translator, plain, patched[POSITION])
