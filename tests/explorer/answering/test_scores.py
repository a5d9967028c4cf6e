"""The terms of scores and values, and the rows of a patching sweep, as a page asks for them."""

import pytest
import torch

from clearhead.analysis.scores import ov_attribution, qk_attribution
from clearhead.analysis.sweep import PatchingSweep
from clearhead.errors import UserError
from tests.explorer.asking import ask, last, session_of, start
from tests.explorer.test_session import edited
from tests.explorer.traced import CONFIGS, inputs


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "edited"])
@pytest.mark.parametrize("name", ["encoder_decoder_relative", "decoder_rotary_grouped", "encoder_masked_language"])
def test_why_it_looks_there(name: str, plain: bool) -> None:
    session = session_of(name)
    network, (page, python) = session.model.network, ([], {}) if plain else edited(name)
    run, at = {**start(session), "edits": page}, f"{last(name)}.blocks.1.attn.scores[h=2,t=3,s=1]"
    batch = session.model.reader.inputs(*inputs(CONFIGS[name]), session.model.generation)
    expected = qk_attribution(network, batch, at, edit=python)
    reply, _ = ask(session, "qk", run=run, at=at, k=5)
    assert [(one["query"], one["key"]) for one in reply["pairs"]] == [(q, k) for q, k, _ in expected.top(5)]
    assert reply["score"] == pytest.approx(expected.score, abs=1e-6)
    total = sum(one["value"] for one in reply["pairs"]) + reply["rest"] + sum(reply["others"].values())
    assert total == pytest.approx(reply["score"], abs=1e-5 * max(1, abs(reply["score"])))
    assert reply["left"] == expected.pairs.numel() - 5
    if name == "decoder_rotary_grouped":
        at = at.replace("scores", "weights")
        carried = ov_attribution(network, batch, at, 4, minus=2, edit=python)
        reply, _ = ask(session, "ov", run=run, at=at, logit=4, minus=2)
        assert reply["shares"] == pytest.approx(carried.shares, abs=1e-6)
        assert reply["contribution"] == pytest.approx(carried.contribution, abs=1e-6)


def test_a_sweep_row_by_row() -> None:
    session = session_of("decoder_rotary_grouped")
    clean, answers = start(session), {"answer": 4, "minus": 2}
    corrupt = {**clean, "text": "one three three"}
    reader, generation = session.model.reader, session.model.generation
    first, second = (reader.inputs(run["text"], None, generation) for run in (clean, corrupt))
    expected = PatchingSweep(session.model.network, first, second, 4, minus=2)
    about, none = ask(session, "patching", clean=clean, corrupt=corrupt, **answers)
    assert none == {}
    assert about["sites"]["heads"] == expected.sites("heads")
    assert about["alignment"] == {"decoder": [list(pair) for pair in expected.alignment["decoder"]]}
    assert about["clean"] == pytest.approx(expected.clean, abs=1e-5)
    at = ["decoder.blocks.1.attn.z", "decoder.blocks.0.resid_pre"]
    _, rows = ask(session, "patching", clean=clean, corrupt=corrupt, at=at, **answers)
    for one in at:
        torch.testing.assert_close(rows[one], expected.row(one).restored, atol=1e-5, rtol=1e-4, equal_nan=True)
    edited_run = {**corrupt, "edits": [{"at": "decoder.blocks.0.attn.out", "do": "zero"}]}
    with pytest.raises(UserError, match="expected two texts of one model without edits"):
        ask(session, "patching", clean=clean, corrupt=edited_run, **answers)
