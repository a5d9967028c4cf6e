"""Every property of the mechanisms that `small.PAIRS` does not hold, and what else they must be right in."""

from typing import Any

import pytest
import torch

from clearhead import config as c
from clearhead.analysis.attribution import attribute
from clearhead.errors import UserError
from clearhead.model.positions import rotary_frequencies
from tests.model import small
from tests.model.mechanism import properties_of
from tests.model.small import assert_close, ids

LONG = c.LongScaling(divisors=(1.5, 2.5), original_length=20, attention_factor=1.2)
MPNET = c.Together(added=c.Learned(max_length=24, offset=2), scored=c.RelativeBias(n_buckets=8, max_distance=16))
BESIDE = c.Together(added=c.Learned(max_length=24), scored=c.Disentangled(max_distance=3, position_to_content=False))
BRANCH: dict[str, Any] = {"norm_place": "branch", "norm": "rms"}
PLUS_ONE: dict[str, Any] = {"norm_gain": "one_plus_weight"}
FACTORS: dict[str, Any] = {"branch_scale": 0.4, "input": c.TokenInput(vocab_size=small.VOCAB, factor=3.0, scale=True)}
WIDE = c.TokenInput(vocab_size=small.VOCAB, width=16, norm=True)

test_properties = properties_of(
    {"parallel": "one_norm", "positions": c.Rotary(), "n_kv_heads": 2},
    {"parallel": "one_norm", "first_norm": False},
    {"parallel": "two_norms", "norm": "rms", "gated": True},
    {"sinks": True},
    {"attn_gate": True},
    {"d_head": 8, "latent": c.Latent(rank=5, d_shared=2, d_value=3, query_rank=4, bias=True)},
    {
        "d_head": 6,
        "positions": c.Rotary(fraction=0.67),
        "latent": c.Latent(rank=5, d_shared=4, d_value=8, norm_eps=1e-3),
    },
    BRANCH | {"qk_norm": True, "qk_norm_over": "heads", "n_kv_heads": 2, "positions": c.Rotary(scaling=LONG)},
    PLUS_ONE | {"norm": "rms", "norm_place": "sandwich"},
    PLUS_ONE | FACTORS | {"positions": c.ALiBi()},
    {"positions": c.Rotary(), "rotary_layers": (1,)},
    {"positions": MPNET},
    {"positions": c.Together(added=c.Sinusoidal(), scored=c.ALiBi())},
    {"positions": c.Disentangled(max_distance=16, n_buckets=4, shared=True, norm=True), "norm_place": "post"},
    {"positions": BESIDE, "n_kv_heads": 2},
    {"positions": c.RelativeBias(n_buckets=8, max_distance=16, each_layer=True), "soft_cap": 1.5},
    {"activation": "squared_relu"},
    {"activation": "xielu", "norm_gain": "none", "norm_bias": False, "clip_qkv": 0.5},
    {"norm": "rms", "norm_gain": "none", "bias": False, "clip_qkv": 0.5, "qk_norm": True, "qk_norm_over": "heads"},
    {"activation": "squared_relu", "gated": True, "norm": "rms", "bias": False},
    {"input": WIDE, "positions": c.Sinusoidal(offset=3, base=50.0), "gated": True, "down_bias": False, "n_groups": 1},
)


test_norm_after_the_rotation = properties_of(
    {"positions": c.Rotary(), "norm": "rms", "bias": False, "qk_norm": True, "qk_norm_over": "turned_head"},
    but=("costs_are_what_autograd_keeps",),  # What a fused kernel keeps of normed heads is not exact.
)


@pytest.mark.parametrize("changes", [FACTORS, BRANCH, PLUS_ONE], ids=["factors", "branch", "gain"])
def test_attribution_adds_up(changes: dict[str, Any]):
    found = attribute(small.decoder(**changes), [ids(2, 5)], 3)
    assert_close(torch.stack([*found.shares.values()]).sum(0), found.logit)


def test_angles_divided_one_by_one():
    plain, _ = rotary_frequencies(c.Rotary(), 4)
    assert rotary_frequencies(c.Rotary(scaling=LONG), 4)[0] == [plain[0] / 1.5, plain[1] / 2.5]


@pytest.mark.parametrize(
    ("positions", "longest"), [(c.Rotary(scaling=LONG), 20), (MPNET, 24)], ids=["divided", "together"]
)
def test_a_text_longer_than_the_positions_is_refused(positions: c.Encoding, longest: int):
    with pytest.raises(UserError, match=f"length {longest + 1}: this model's positions end at {longest}"):
        small.decoder(positions=positions)(ids(1, longest + 1))
