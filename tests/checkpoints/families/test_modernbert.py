"""What the comparison with the reference library cannot see: older spellings, and refusals."""

from typing import Any

import pytest

from clearhead.checkpoints.families import family_for, family_of
from clearhead.checkpoints.families.family import canonical
from clearhead.config import Rotary, StackConfig
from clearhead.errors import UserError
from tests.checkpoints.families.hub import CONFIGS

FULL, LOCAL = "full_attention", "sliding_attention"


def encoder(**changes: object) -> StackConfig:
    document: dict[str, Any] = {
        name: value for name, value in (CONFIGS["modernbert"] | changes).items() if value != "absent"
    }
    config, _ = family_of(document, where="config.json").read(document, where="config.json")
    found = family_for(config)
    assert found is not None
    again, _ = found[0].read(found[2], where="config.json")
    assert canonical(again) == canonical(config)
    assert config.encoder is not None
    return config.encoder


def test_windows_reach_half_of_local_attention_on_each_side() -> None:
    stack = encoder()
    assert stack.window == 65
    assert stack.window_layers == tuple(i for i in range(22) if i % 3)
    assert (stack.positions, stack.window_positions) == (Rotary(base=160_000.0), Rotary(base=10_000.0))


def test_older_spellings() -> None:
    assert encoder(global_attn_every_n_layers="absent", global_rope_theta="absent", local_rope_theta="absent") == (
        encoder()
    )
    assert encoder(local_rope_theta=None).window_positions is None
    assert encoder(rope_parameters={FULL: {"rope_theta": 500.0}}).positions == Rotary(base=500.0)
    kinds = [LOCAL] * 21 + [FULL]
    assert encoder(layer_types=kinds, global_attn_every_n_layers=3).window_layers == tuple(range(21))


def test_layers_that_are_all_alike_need_no_word_on_it() -> None:
    full = encoder(global_attn_every_n_layers=1)
    assert (full.window, full.window_layers, full.positions) == (None, None, Rotary(base=160_000.0))
    local = encoder(layer_types=[LOCAL] * 22)
    assert (local.window, local.window_layers, local.positions) == (65, None, Rotary(base=10_000.0))
    assert local.window_positions is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classifier_activation": "relu"}, "classifier_activation: expected hidden_activation, 'gelu', got 'relu'"),
        ({"rope_parameters": {FULL: {"rope_type": "yarn", "factor": 2.0}}}, "rope_parameters: expected rope_type"),
        (
            {"rope_parameters": {"rope_theta": 5.0}},
            "rope_parameters: expected full_attention and sliding_attention, got rope_theta",
        ),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling: expected None, the only value"),
        (
            {"layer_types": [FULL]},
            "layer_types: expected full_attention or sliding_attention for each of num_hidden_layers=22",
        ),
        ({"layer_types": ["chunked"] * 22}, "layer_types: expected full_attention or sliding_attention"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers:"),
        ({"num_hidden_layers": "many"}, "expected"),
        ({"global_attn_every_n_layers": "some"}, "expected"),
        ({"local_attention": -4}, "local_attention:.*greater than 0"),
    ],
)
def test_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        encoder(**changes)
