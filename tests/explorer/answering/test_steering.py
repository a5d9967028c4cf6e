"""Directions of two sets of texts: added by an edit, in a pass and while a model writes."""

from typing import Any

import pytest
import torch

from clearhead.api.steering import direction, pair
from clearhead.errors import UserError
from tests.explorer.asking import GENERATE, ask, session_of, start

SETS = {"positive": ["one two three", "two one"], "negative": ["five four", "four five five"]}
PAIRS = {"positive": ["one\teins zwei", "two\tzwei"], "negative": ["five\tvier", "four\tfünf eins"]}


def edit(at: str, value: float, **fields: Any) -> dict[str, Any]:
    return {"at": at, "do": "add", "value": value, "of": SETS, **fields}


def test_a_pass_with_a_direction_is_python_s():
    session, at = session_of("decoder_pre_learned"), "decoder.blocks.0.resid_post"
    run = start(session)
    found = direction(session.model, SETS["positive"], SETS["negative"], at=at)
    said = ask(session, "direction", run=run, at=at, of=SETS)[0]
    assert said["length"] == pytest.approx(float(found.vector.norm()), rel=1e-5)
    values = ask(session, "values", run=run, at=[at])[1][at]
    assert said["states"] == pytest.approx(float(values.norm(dim=-1).mean()), rel=1e-5)
    seen, _ = session.model.trace(run["text"], edit=found.edit(-2.5))
    last = "decoder.blocks.1.resid_post"
    steered = {**run, "edits": [edit(at, -2.5)]}
    torch.testing.assert_close(ask(session, "values", run=steered, at=[last])[1][last], seen[last][0])
    assert not torch.allclose(ask(session, "values", run=run, at=[last])[1][last], seen[last][0])
    assert not ask(session, "generate", run=steered, settings=GENERATE)[0]["notes"]


def test_at_one_position_and_in_an_encoder_decoder():
    session, at = session_of("encoder_decoder_post"), "encoder.blocks.0.resid_post"
    run = start(session)
    plain, changed = (
        ask(session, "values", run={**run, "edits": edits}, at=[at])[1][at]
        for edits in ([], [edit(f"{at}[t=1]", 1.0, of=PAIRS)])
    )
    pairs = [[pair(line) for line in PAIRS[name]] for name in ("positive", "negative")]
    found = direction(session.model, *pairs, at=at).vector
    torch.testing.assert_close(changed[1], plain[1] + found)
    assert torch.equal(changed[0], plain[0])


@pytest.mark.parametrize(
    ("one", "message"),
    [
        ({"do": "add", "value": 1}, "add needs of, two sets of texts"),
        ({"do": "add", "of": SETS}, "add needs value, a number"),
        ({"do": "add", "value": 1, "of": {"positive": [], "negative": ["a"]}}, "positive"),
        ({**edit("", 1), "at": "decoder.blocks.0.resid_post[d=3]"}, "expected the address of whole vectors"),
        ({**edit("", 1), "at": "decoder.blocks.0.attn.z"}, "expected one vector for each position"),
    ],
)
def test_refusals(one: dict[str, Any], message: str):
    session = session_of("decoder_pre_learned")
    with pytest.raises(UserError, match=message):
        ask(session, "run", run={**start(session), "edits": [{"at": "decoder.blocks.0.resid_post", **one}]})
