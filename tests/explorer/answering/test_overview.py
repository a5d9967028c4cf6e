"""The overview as the page asks for it."""

import pytest

from clearhead.api import Model
from clearhead.explorer.session import Session
from clearhead.model.fast.int8 import quantized
from tests.explorer.asking import ask, last, session_of, start
from tests.explorer.traced import CONFIGS, model_of


@pytest.mark.parametrize("name", CONFIGS)
def test_the_page_gets_every_part(name: str):
    session = session_of(name)
    run = start(session)
    heads, tensors = ask(session, "overview", run=run, part="heads")
    assert len(heads["at"]) == len(tensors["moved"]) == len(tensors["p"])
    decided = heads["decided"]
    assert decided["moved"] == pytest.approx(float(tensors["moved"].max()))
    length = len(ask(session, "run", run=run)[0]["tokens"][last(name)])
    assert 0 <= heads["position"] < length
    if heads["kind"] != "vector":
        best = heads["answers"][0]
        off = {**run, "edits": [{"at": heads["at"][decided["head"]], "do": "zero"}]}
        without, _ = ask(session, "overview", run=off, part="heads", position=heads["position"])
        shares = {one["id"]: one["p"] for one in without["answers"]}
        expected = float(tensors["p"][decided["head"]])
        assert shares.get(best["id"], expected) == pytest.approx(expected, abs=1e-5)
    curves, _ = ask(session, "overview", run=run, part="curves")
    assert all(one["weight"] >= 0.02 for one in curves["curves"])
    for part in ("lanes", "ffn"):
        about, tensors = ask(session, "overview", run=run, part=part)
        for stack, moved in tensors.items():
            assert moved.shape == (2 + (part == "lanes"), len(about["stacks"][stack]))
            assert bool(((moved >= 0) & (moved <= 1)).all())


def test_a_rounded_model_has_no_overview():
    model = model_of(CONFIGS["decoder_pre_learned"])
    assert "overview" in ask(Session(model, name="whole", text="one two"), "about")[0]["answers"]
    rounded = Session(Model(quantized(model.network), model.tokenizer), name="rounded", text="one two")
    assert "overview" not in ask(rounded, "about")[0]["answers"]
