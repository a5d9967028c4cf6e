"""FFN(x) = act(x W_1 + b_1) W_2 + b_2, its activations and its gated form."""

import math
from typing import Any

import pytest
import torch

from clearhead.model.feedforward import ACTIVATIONS, FeedForward
from clearhead.model.meta import ops_of
from clearhead.trace import trace
from tests.model import small
from tests.model.mechanism import properties_of
from tests.model.small import assert_close, ids

EQUATIONS = {
    "relu": lambda x: max(0.0, x),
    "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + math.exp(-x)),
}


@pytest.mark.parametrize("name", EQUATIONS)
def test_activation_is_its_equation(name: str) -> None:
    x = torch.linspace(-6, 6, 101)
    expected = torch.tensor([EQUATIONS[name](v) for v in x.double().tolist()])
    assert_close(ACTIVATIONS[name](x), expected)


@pytest.mark.parametrize("changes", [{"ffn_bias": False}, {"bias": False}, {"bias": False, "ffn_bias": True}])
def test_bias_where_the_config_says(changes: dict[str, Any]) -> None:
    names = {name for name, _ in FeedForward(small.stack(gated=True, **changes)).named_parameters()}
    assert ("up.bias" in names) == ("down.bias" in names) == ("gate.bias" in names) == changes.get("ffn_bias", False)


def test_each_position_on_its_own() -> None:
    ffn = FeedForward(small.stack())
    x = torch.randn(2, 5, 16)
    assert_close(ffn(x)[:, 3:4], ffn(x[:, 3:4]))


# --- squared relu --------------------------------------------------------------------------------------------------


SQUARED = {"activation": "squared_relu"}

test_squared_relu_properties = properties_of(SQUARED, SQUARED | {"gated": True, "norm": "rms", "bias": False})


def test_it_is_the_square_of_relu() -> None:
    network, at = small.decoder(**SQUARED), "decoder.blocks.0.ffn"
    with trace(network) as seen:
        network(ids(2, 5))
    assert_close(seen[f"{at}.post"], seen[f"{at}.pre"].clamp(min=0) ** 2)
    assert not {op.how for op in ops_of(network.config) if op.op == "activation"} - {"relu"}, "the page knows ReLU"
