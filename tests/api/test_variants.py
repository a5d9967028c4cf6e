"""Another config over the same weights: the tensors are shared, and the numbers those of that config."""

import pytest
import torch

from clearhead import config as c
from clearhead.api.variants import changed, position_kinds
from clearhead.errors import UserError
from clearhead.storage.tensors import model_tensors
from tests.explorer.asking import ask, session_of, start
from tests.explorer.traced import CONFIGS, model_of, stack


@pytest.mark.parametrize("name", [*CONFIGS][1::2])
def test_every_change_that_is_offered_can_be_made(name: str):
    session, model = session_of(name), session_of(name).model
    about, _ = ask(session, "about")
    offered = about["changes"]["positions"]
    assert offered[0] == CONFIGS[name].output.positions.kind
    for kind in offered:
        variant = model.changed(positions=kind)
        theirs = {tensor.data_ptr() for tensor in model_tensors(model.network).values()}
        assert {tensor.data_ptr() for tensor in model_tensors(variant.network).values()} <= theirs
        run = {**about["start"], "change": {"positions": kind}}
        reply, _ = ask(session, "run", run=run)
        assert ("plan" in reply) == (kind != CONFIGS[name].output.positions.kind)
        assert ask(session, "check", run=run)[0]["check"]["recompute_max_relative"] <= 1e-5


def test_without_the_scale():
    session = session_of("decoder_pre_learned")
    run, at = start(session), "decoder.blocks.0.attn.scores"
    plain = ask(session, "values", run=run, at=[at])[1][at]
    reply, _ = ask(session, "run", run={**run, "change": {"scale": False}})
    changed = ask(session, "values", run={**run, "change": {"scale": False}}, at=[at])[1][at]
    torch.testing.assert_close(changed, plain * 4**0.5)
    assert reply["plan"]["config"]["decoder"]["attn_scale"] == 1.0
    scales = [op["by"]["factor"] for op in reply["plan"]["ops"] if op["out"] == at and op["op"] == "scale"]
    assert scales == [1.0]


def test_what_has_no_scale_or_no_pairs_is_not_offered():
    unscaled = c.ModelConfig(decoder=stack(attn_scale=1.0))
    assert changed(unscaled, scale=False) == unscaled
    odd = c.ModelConfig(decoder=stack(d_model=12, n_heads=4, positions=c.ALiBi()))
    assert position_kinds(odd) == ["alibi", "sinusoidal", "none"]


def test_what_must_be_learned_is_refused():
    model = model_of(CONFIGS["decoder_alibi_capped"])
    with pytest.raises(UserError, match="got learned, which must be learned"):
        model.changed(positions="learned")
    odd = model_of(c.ModelConfig(decoder=stack(d_model=12, n_heads=4, positions=c.ALiBi())))
    with pytest.raises(UserError, match="positions: expected some for this network, got rotary"):
        odd.changed(positions="rotary")
