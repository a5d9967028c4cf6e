"""The code of *As Python* prints the answer and the number that the page shows, whatever the page was set to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.explorer.browser.conftest import Open, Serve
from tests.explorer.browser.numbers import NUMBER, agrees
from tests.explorer.browser.page import becomes, fragment
from tests.explorer.browser.seeing import INPUTS
from tests.explorer.browser.test_acting import in_python, topk

TEXT, TARGET = INPUTS["translator"]
OTHER = " ".join(reversed(TEXT.split()))
CROSS: dict[str, Any] = {
    "stack": "decoder",
    "part": "cross",
    "layer": 1,
    "head": 1,
    "query": 2,
    "key": 1,
    "position": 2,
}
Z = "decoder.blocks.1.cross.z[h=1]"
CLEAN = {"text": TEXT, "target": TARGET, "edits": []}
EDITS: dict[str, list[dict[str, Any]]] = {
    "none": [],
    "zero": [{"at": Z, "do": "zero"}],
    "mean": [{"at": "encoder.blocks.0.attn.z[h=0]", "do": "mean"}],
    "row": [{"at": "decoder.blocks.1.cross.weights[h=1,t=2]", "do": "set", "value": [1]}],
    "two": [{"at": Z, "do": "scale", "value": -1.5},
            {"at": "encoder.blocks.0.attn.scores[h=0,t=1,s=2]", "do": "close"}],
    "patch": [{"at": "encoder.blocks.0.resid_post[t=1]", "do": "patch",
               "from": {"text": OTHER, "target": TARGET, "edits": [], "change": {"scale": False}}}],
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    **{name: {"edits": edits} for name, edits in EDITS.items()},
    "temperature": {"edits": EDITS["zero"], "temperature": 0.5},
    "another position": {"edits": EDITS["zero"], "position": 1, "temperature": 2},
    "unscaled": {"edits": [], "change": {"scale": False}},
    "second text": {"edits": [], "other": {"text": OTHER, "target": TARGET}},
    "what the model wrote": {"edits": EDITS["zero"], "target": None, "position": 1},
}
PLACES: dict[str, dict[str, Any]] = {
    "weights": {"view": "attention", "step": "softmax"},
    "scores": {"view": "attention", "step": "scaled"},
    "values": {"view": "attention", "step": "weighted", "dim": 3},
    "ffn": {"view": "ffn"},
}


@pytest.mark.parametrize(
    ("case", "place"),
    [*((case, "weights") for case in CASES), *(("zero", place) for place in PLACES), ("another position", "scores")],
)
def test_the_code_prints_what_the_page_shows(
    shared_page: Open, serve: Serve, tmp_path: Path, case: str, place: str
) -> None:
    served = serve("translator")
    state: dict[str, Any] = {
        **CROSS,
        "position": 2,
        **PLACES[place],
        **CASES[case],
        "mode": "research",
        "side": "a" if case == "none" else "b",
    }
    if case == "row":
        n = served.trace(TEXT, TARGET)[0]["decoder.blocks.1.cross.weights"].shape[-1]
        state["edits"] = [{**EDITS["row"][0], "value": [1.0, *[0.0] * (n - 1)]}]
    opened = shared_page("translator", fragment(TEXT, state.pop("target", TARGET), **state))
    opened.quiet()  # The code follows a link at once, the chances after both passes.
    becomes(lambda: ".item()" in opened.code(), True)
    becomes(lambda: f"logits[{state['position']}]" in opened.code().replace("(", ""), True)
    printed = in_python(opened.code(), tmp_path)
    p, ids = topk(printed)
    shown = {word: (a if case == "none" else b) for word, a, b in opened.chances()}
    words = served.model.tokenizer.tokens(ids)
    seen = [(shown[word], share) for word, share in zip(words, p, strict=True) if word in shown]
    assert len(seen) >= 3
    assert [agrees(text or "", share) for text, share in seen] == [True] * len(seen), (seen, opened.code())
    number = opened.page.locator("#cell").get_attribute("placeholder") or ""
    assert agrees(number, float(printed.strip().splitlines()[-1])), (number, printed, opened.code())


COMPUTED: dict[str, dict[str, Any]] = {
    "overview": {},
    "lens": {},
    "heads": {},
    "generation": {},
    "logits": {"temperature": 2, "position": 1},
    "patching": {"other": {"text": OTHER, "target": TARGET}, "position": 1},
    "circuits": {"other": {"text": OTHER, "target": TARGET}},
}
"""Places that compute more than the pass, each with what the reader set."""


@pytest.mark.parametrize("view", COMPUTED)
def test_the_code_computes_what_the_place_shows(shared_page: Open, tmp_path: Path, view: str) -> None:
    """Every number that it prints last stands in the place, as the page writes it."""
    opened = shared_page("translator", fragment(TEXT, TARGET, view=view, mode="research", **COMPUTED[view]))
    main = opened.page.locator("main")
    if view == "generation":
        for label, value in {"Temperature": "1.5", "top-k": "6", "seed": "4"}.items():
            field = main.locator("form label", has_text=label).locator("input")
            field.fill(value)
            field.press("Tab")
        opened.button("Write").click()
    elif view == "logits":
        main.locator("input.number").first.fill("3")
        main.locator("input.number").first.press("Tab")
    opened.quiet()
    if view == "circuits":
        main.get_by_text("How it is found").click()
    calls = {"generation": "translate(", "logits": "top_k(", "patching": "Sweep(", "circuits": "circuits_of("}
    becomes(lambda: calls.get(view, "clearhead.analysis") in opened.code(), True)
    opened.quiet()
    lines = in_python(opened.code(), tmp_path).strip()
    if view == "generation":
        written = main.locator(".texts .text.A button").all_inner_texts()
        assert lines.splitlines()[-1] == str(["".join(written).replace("▁", " ").removesuffix("<eos>").strip()])
        return
    printed = {
        "overview": lambda: ", ".join(re.findall(r"(?:weight|moved)=([\d.]+)", lines)),
        "lens": lambda: lines.split("tensor([[[")[-2].rsplit("]]])")[0].split("[[")[-1].split("]")[0],
        "heads": lambda: ", ".join(re.findall(r"'[^']+': ([-+.e\d]+)", lines)),
        "logits": lambda: lines.split("values=tensor([")[2].split("]")[0],
        "patching": lambda: lines.split("torch.return_types")[0].replace("tensor", ""),
        "circuits": lambda: lines.split(", [Edge")[0].split(")")[0],
    }[view]()
    numbers = [float(x) for x in re.findall(r"-?\d[\d.]*(?:e[-+]?\d+)?|nan", printed)]
    assert len(numbers) >= 2, lines

    def missing() -> list[float]:
        shown = [one[0].strip() for one in NUMBER.finditer(main.inner_text())]
        return [x for x in numbers if not any(agrees(text, x) for text in shown)]

    becomes(missing, [])


def test_the_code_of_a_difference_prints_both_sides(shared_page: Open, tmp_path: Path) -> None:
    state = {**CROSS, "part": "attn", "layer": 1, "edits": [{"at": "decoder.blocks.0.attn.z[h=0]", "do": "zero"}]}
    opened = shared_page("translator", fragment(TEXT, TARGET, view="attention", side="diff", mode="research", **state))
    becomes(lambda: "other_a[" in opened.code(), True)
    printed = in_python(opened.code(), tmp_path)
    words = opened.served.model.tokenizer.tokens
    shown = opened.chances()
    for side, part in zip((1, 2), printed.split("torch.return_types.topk(")[1:], strict=True):
        p, ids = topk(part)
        seen = [
            (row[side], share) for word, share in zip(words(ids), p, strict=True) for row in shown if row[0] == word
        ]
        assert len(seen) >= 3
        assert [agrees(text or "", share) for text, share in seen] == [True] * len(seen), (seen, opened.code())
    cell = opened.page.locator('main td[aria-selected="true"]').last.inner_text()
    assert agrees(cell, float(printed.strip().splitlines()[-1])), (cell, printed)
