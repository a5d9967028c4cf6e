"""What changed, as the page asks it: the library's own numbers, kept for the next time, other questions in between."""

import copy

import pytest
import torch

from clearhead.api import Model
from clearhead.errors import UserError
from clearhead.explorer.answering import data_sets as answering
from clearhead.explorer.answering.questions import COMPARED
from clearhead.explorer.session import Session
from tests.explorer.asking import ask
from tests.explorer.traced import CONFIGS, model_of

TEXTS = ["one two three", "four five", "two nine one seven"]


def changed(model: Model) -> Model:
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.network.get_parameter("decoder.blocks.0.ffn.down.weight")[:, 3] *= 3
    return other


def test_the_compared_model_answers_by_itself():
    """Its values, and its parameters, as a checkpoint's."""
    model = model_of(CONFIGS["decoder_pre_learned"])
    other = changed(model)
    session, at = Session(model, name="one", text=TEXTS[0], compared=other), "decoder.blocks.0.ffn.down.weight"
    run = {"text": TEXTS[0], "step": COMPARED}
    found = ask(session, "values", run=run, at=["decoder.blocks.0.ffn.out"])[1]["decoder.blocks.0.ffn.out"]
    seen, _ = other.trace(TEXTS[0])
    torch.testing.assert_close(found, seen["decoder.blocks.0.ffn.out"][0])
    assert not torch.equal(found, model.trace(TEXTS[0])[0]["decoder.blocks.0.ffn.out"][0])
    row = ask(session, "weights", step=COMPARED, at=[f"{at}[i=1]"])[1][f"{at}[i=1]"]
    assert torch.equal(row, other.network.get_parameter(at)[1])
    with pytest.raises(UserError, match="try clearhead explore MODEL --compare OTHER"):
        ask(Session(model, name="one", text=TEXTS[0]), "run", run=run)


def test_it_is_found_once(monkeypatch):
    model = model_of(CONFIGS["decoder_pre_learned"])
    session = Session(model, name="one", data=TEXTS, compared=changed(model))
    first, _ = ask(session, "difference", texts=2)
    monkeypatch.setattr(answering, "over_texts", None)
    assert ask(session, "difference", texts=2)[0] == first


def test_what_cannot_be_compared():
    model = model_of(CONFIGS["decoder_pre_learned"])
    with pytest.raises(UserError, match="expected the same in both models"):
        Session(model, name="one", compared=model_of(CONFIGS["decoder_rotary_grouped"]))
    alone = Session(model, name="one")
    assert "difference" not in ask(alone, "about")[0]["answers"]
    with pytest.raises(UserError, match="step: expected a checkpoint, got -1; try clearhead explore MODEL"):
        ask(alone, "difference")
