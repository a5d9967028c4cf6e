"""FFN(x) = act(x W_1 + b_1) W_2 + b_2, its activations and its gated form."""

import math

import pytest
import torch

from clearhead.model.feedforward import ACTIVATIONS, FeedForward
from tests.model import small
from tests.model.small import assert_close

EQUATIONS = {
    "relu": lambda x: max(0.0, x),
    "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + math.exp(-x)),
}


@pytest.mark.parametrize("name", EQUATIONS)
def test_activation_is_its_equation(name: str):
    x = torch.linspace(-6, 6, 101)
    expected = torch.tensor([EQUATIONS[name](v) for v in x.double().tolist()])
    assert_close(ACTIVATIONS[name](x), expected)


def test_the_activation_is_of_the_gate():
    ffn, x = FeedForward(small.stack(gated=True, activation="silu")), torch.randn(2, 3, 16)
    assert ffn.gate is not None
    assert_close(ffn(x), ffn.down(torch.nn.functional.silu(ffn.gate(x)) * ffn.up(x)))
