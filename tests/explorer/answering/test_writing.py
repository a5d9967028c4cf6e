"""What a model writes under edits is what its edited forward pass says, position by position."""

from typing import Any

import pytest
import torch

from tests.explorer.asking import ask, session_of, start
from tests.explorer.traced import TOKENIZER

D = "decoder.blocks"
EDITS: dict[str, list[dict[str, Any]]] = {
    "none": [],
    "encoder": [{"at": "encoder.blocks.0.attn.z[h=1]", "do": "mean"}],
    "head": [{"at": f"{D}.0.attn.z[h=1]", "do": "scale", "value": 8}],
    "one_position": [{"at": f"{D}.1.ffn.post[t=2]", "do": "scale", "value": 9}],
    "keys": [
        {"at": f"{D}.0.attn.k[h=1]", "do": "scale", "value": 5},
        {"at": f"{D}.1.attn.v[s=1]", "do": "set", "value": 3},
    ],
    "closed": [{"at": f"{D}.0.attn.scores[h=1,s=1]", "do": "scale", "value": 4}],
    "cross": [{"at": f"{D}.1.cross.weights[h=2,t=1]", "do": "set", "value": [1, 0, 0, 0, 0, 0, 0]}],
    "stream": [{"at": "decoder.embed.sum[t=3]", "do": "set", "value": 1.5}],
    "logits": [{"at": "head.logits[t=1]", "do": "scale", "value": -1}],
}


@pytest.mark.parametrize("edits", EDITS)
@pytest.mark.parametrize("name", ["encoder_decoder_post", "encoder_decoder_relative"])
def test_each_written_token_is_the_likeliest(name: str, edits: str):
    session = session_of(name)
    run = {**start(session), "target": None, "edits": EDITS[edits]}
    reply, tensors = ask(session, "run", run=run)
    ids, likeliest = [token["id"] for token in reply["tokens"]["decoder"]], tensors["output.ids"][:, 0].tolist()
    assert likeliest[: len(ids) - 1] == ids[1:]
    assert likeliest[-1] == TOKENIZER.eos_id or len(ids) == 1 + 4  # its limit
    assert reply["target"] == TOKENIZER.decode(ids[1:])
    assert reply["notes"] == []


def test_edits_change_what_is_written():
    """Else the test above would hold for a writer that ignores them."""
    session = session_of("encoder_decoder_relative")
    run = {**start(session), "target": None}
    plain = ask(session, "run", run=run)[0]["target"]
    written = {name: ask(session, "run", run={**run, "edits": EDITS[name]})[0]["target"] for name in ("head", "logits")}
    assert plain not in written.values()


def test_an_edit_that_needs_the_whole_target_is_left_out_and_said():
    session, at = session_of("encoder_decoder_relative"), f"{D}.0.attn.z[h=1]"
    run = {**start(session), "target": None}
    reply, _ = ask(session, "run", run={**run, "edits": [{"at": at, "do": "mean"}]})
    assert reply["target"] == ask(session, "run", run=run)[0]["target"]
    assert reply["notes"] == [f"This was written without the edits of {at}, which need the whole text."]
    assert reply["facts"][f"{D}.0.attn.z"]["by_hand"]  # It is made in the pass over what was written.


def test_the_target_that_is_given_is_read():
    session = session_of("encoder_decoder_relative")
    reply, _ = ask(session, "run", run={**start(session), "target": "zwei eins"})
    assert reply["target"] == "zwei eins"
    assert [token["text"] for token in reply["tokens"]["decoder"]][1:] == ["▁zwei", "▁eins"]
    empty, tensors = ask(session, "run", run={**start(session), "target": ""})
    assert len(empty["tokens"]["decoder"]) == 1
    assert torch.isfinite(tensors["output.lse"]).all()
