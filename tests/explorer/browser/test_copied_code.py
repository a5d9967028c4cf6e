"""The code of *As Python* prints the answer and the number that the page shows, whatever the page was set to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clearhead.explorer.session import Session
from tests.explorer.asking import ask
from tests.explorer.browser.conftest import Open, Serve
from tests.explorer.browser.numbers import agrees
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
    open_page: Open, serve: Serve, tmp_path: Path, case: str, place: str
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
    opened = open_page(served, fragment(TEXT, state.pop("target", TARGET), **state))
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


def test_the_page_knows_which_version_of_a_model_it_shows(serve: Serve) -> None:
    about = ask(serve("translator").session, "about")[0]
    assert about["revision"] is None
    named = Session(serve("translator").model, name="some/name", text=TEXT, revision="v2")
    assert ask(named, "about")[0]["revision"] == "v2"
