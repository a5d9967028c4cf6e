"""The ops name every value that a network taps, in an order in which each can be made."""

import pytest

from clearhead.model import Transformer
from clearhead.model.meta import masks_of, ops_of
from tests.explorer.traced import CONFIGS, inputs, model_of


@pytest.mark.parametrize("name", CONFIGS)
def test_every_tapped_value_has_one_op_and_every_input_comes_before(name: str) -> None:
    config = CONFIGS[name]
    seen, _ = model_of(config).trace(*inputs(config))
    ops = ops_of(config)
    made = [op.out for op in ops]
    assert len(made) == len(set(made))
    assert set(seen) <= set(made)
    given = {f"{stack}.{what}" for stack in ("encoder", "decoder") for what in ("ids", "types", "positions")}
    known = given | {"encoder.embed.pixels"}
    for op in ops:
        assert set(op.inputs) <= known, op
        known.add(op.out)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_parameter_is_named_by_an_op(name: str) -> None:
    network = Transformer(CONFIGS[name])
    # Tied tables are one parameter of several names.
    used = {id(network.get_parameter(w)) for op in ops_of(CONFIGS[name]) for w in op.weights}
    unused = {n for n, parameter in network.named_parameters() if id(parameter) not in used}
    assert unused <= {"head.pooler.weight", "head.pooler.bias"}  # of a head that says the states themselves
    assert not unused or name == "encoder_states"


def test_masks_have_names() -> None:
    masks = masks_of(CONFIGS["decoder_sandwich_local"])
    assert {name: (m.causal, m.window) for name, m in masks.items()} == {
        "decoder.attn": (True, None),
        "decoder.attn.window": (True, 3),
    }
    assert set(masks_of(CONFIGS["encoder_decoder_post"])) == {"encoder.attn", "decoder.attn", "decoder.cross"}
