"""max(0, x)^2 between the two layers of a feed-forward part, and in its gate."""

import pytest
import torch

from clearhead.model.feedforward import squared_relu
from clearhead.model.meta import ops_of
from clearhead.trace import trace
from tests.model import small
from tests.model.mechanism import properties_of
from tests.model.small import assert_close, ids

SQUARED = {"activation": "squared_relu"}

test_properties = properties_of(SQUARED, SQUARED | {"gated": True, "norm": "rms", "bias": False})


def test_it_is_the_square_of_relu() -> None:
    network, at = small.decoder(**SQUARED), "decoder.blocks.0.ffn"
    with trace(network) as seen:
        network(ids(2, 5))
    assert_close(seen[f"{at}.post"], seen[f"{at}.pre"].clamp(min=0) ** 2)
    assert not {op.how for op in ops_of(network.config) if op.op == "activation"} - {"relu"}, "the page knows ReLU"


def test_it_is_the_reference_s() -> None:
    activations = pytest.importorskip("transformers.activations")
    x = torch.linspace(-3, 3, 50)
    assert torch.equal(squared_relu(x), activations.ACT2FN["relu2"](x))
