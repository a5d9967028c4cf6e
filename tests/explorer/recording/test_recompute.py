"""Each recorded value is what its op makes of the recorded values it names: for every architecture, edited or not."""

from collections.abc import Mapping

import pytest
import torch

from clearhead import config as c
from clearhead.errors import UserError
from clearhead.explorer.recording.recording import recompute, recomputed
from clearhead.trace import Edit, scale, zero
from tests.explorer.traced import CONFIGS, inputs, model_of, record, stack

CLOSE = 1e-5


def edits_of(name: str) -> Mapping[str, Edit]:
    """A head switched off, a cell set, a mask opened, a norm's mean and a state scaled, in the last stack."""
    at = f"{'encoder' if CONFIGS[name].decoder is None else 'decoder'}.blocks"
    norm = f"{at}.1.ffn_norm.rstd"
    return {
        f"{at}.0.attn.heads[h=1]": zero,
        f"{at}.0.attn.weights[h=0,t=2,s=1]": 0.7,
        f"{at}.1.attn.masked[h=2,t=1]": 0.5,
        f"{at}.1.attn.k": scale(0.5),
        f"{at}.1.ffn.pre[f=3]": 2.0,
        norm: scale(1.5),
        f"{at}.0.resid_post": scale(2.0),
    }


@pytest.mark.parametrize("edited", [False, True], ids=["plain", "edited"])
@pytest.mark.parametrize("name", CONFIGS)
def test_every_op_recomputes(name: str, edited: bool):
    config = CONFIGS[name]
    model, edit = model_of(config), edits_of(name) if edited else {}
    recording = record(model, *inputs(config), edit=edit)
    found = recomputed(recording)
    by_hand = {address.split("[")[0] for address in edit}
    assert {a for a, fact in recording.facts.items() if fact.by_hand} == by_hand
    assert set(found) == set(recording.tensors) - by_hand - {"encoder.embed.pixels"}
    worst = max(found, key=lambda address: found[address].relative)
    assert found[worst].relative <= CLOSE, worst
    assert recompute(recording).recompute_max_relative == found[worst].relative


@pytest.mark.parametrize(
    "mixer",
    [
        c.GatedDelta(layers=(0,), n_heads=4, n_key_heads=2, d_key=6, d_value=5),
        c.StateSpace(layers=(0,), n_heads=4, d_head=3, d_state=5, n_groups=2, most_step=0.5),
        c.SelectiveScan(layers=(0,), d_inner=6, d_state=3, rank=2),
        c.TimeMixing(layers=(0,), d_inner=6),
    ],
    ids=lambda mixer: mixer.kind,
)
def test_a_state_recomputes(mixer: c.MixerConfig):
    """Its weights, which are no shares, are neither pixels nor rows that sum to 1."""
    recording = record(model_of(c.ModelConfig(decoder=stack(n_layers=2, mixer=mixer))), "one two three")
    check, at = recompute(recording), "decoder.blocks.0.mix.weights"
    assert check.recompute_max_relative <= CLOSE
    assert check.rows_sum_max_error <= CLOSE
    assert recording.facts[at].axes == "h t s"
    assert f"{at}.u8" not in recording.pixels
    assert recording.value(f"{at}[h=1,t=2]").shape == (3,)
    assert at in recomputed(recording)


def test_a_wrong_weight_shows_where_it_is_used():
    model = model_of(CONFIGS["decoder_pre_learned"])
    recording = record(model, "one two three")
    recording.value("decoder.blocks.1.attn.v")  # Which keeps the values of its block.
    with torch.no_grad():
        model.network.get_parameter("decoder.blocks.1.attn.v.weight")[0, 0] += 0.5
    found = recomputed(recording)
    assert {a for a, difference in found.items() if difference.relative > CLOSE} == {"decoder.blocks.1.attn.v"}


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_only_minus_infinity_is_a_closed_cell(value: float):
    at = "decoder.blocks.1.resid_post"
    with pytest.raises(UserError, match=rf"{at}: expected finite numbers, got NaN or infinity"):
        record(model_of(CONFIGS["decoder_pre_learned"]), "one two three", edit={f"{at}[t=2,d=1]": value})


def test_a_large_matrix_is_float32_in_pieces(monkeypatch):
    monkeypatch.setattr("clearhead.model.meta.ROWS", 3)
    model = model_of(CONFIGS["decoder_alibi_capped"])  # Whose head has a bias.
    recording = record(model, inputs(CONFIGS["decoder_alibi_capped"])[0])
    assert recompute(recording).recompute_max_abs < 1e-5


def test_what_is_not_in_a_recording_is_told():
    recording = record(model_of(CONFIGS["decoder_pre_learned"]), "one two three")
    weights, masked = (f"decoder.blocks.1.attn.{name}" for name in ("weights", "masked"))
    for address, message in (
        (f"{weights}[h=4]", "h=4 is outside 0..3"),
        (f"{weights}[k=0]", "axis 'k' is not one of 'h t s'"),
        (masked, "got one that is not stored but made by mask"),
        ("decoder.nothing", "got one that it does not have"),
    ):
        with pytest.raises(UserError, match=message):
            recording.value(address)


def test_a_cell_that_an_edit_closes_is_minus_infinity():
    at = "decoder.blocks.0.attn.masked"
    recording = record(
        model_of(CONFIGS["decoder_pre_learned"]), "one two three", edit={f"{at}[h=0,t=1,s=0]": -torch.inf}
    )
    assert recording.value(f"{at}[h=0]").isneginf().tolist() == [[False, True, True], [True, False, True], [False] * 3]
