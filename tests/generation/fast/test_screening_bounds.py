"""What is proven holds whatever float32 rounds: checked with roundings large enough to see, on every processor."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from clearhead.generation.fast.screening import Screen

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch without oneDNN")
V, D = 1003, 96


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


def matrix(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    linear = nn.Linear(D, len(weight), bias=bias is not None)
    linear.weight.copy_(weight)
    if bias is not None:
        linear.bias.copy_(bias)
    return linear


def of_many_sizes(x: Tensor) -> nn.Linear:
    return matrix(torch.randn(V, D) * torch.randn(V, 1).exp())


def with_large_rows_across(x: Tensor) -> nn.Linear:
    """Rows of one sign or the other, which eight bits hold exactly, a hundred times as large and almost across x."""
    weight = torch.randn(V, D) / D**0.5
    weight[5] = x / x.norm()
    rows = torch.randn(20_000, D).sign() * 100 / D**0.5
    products = rows @ x / x.norm()
    weight[-200:] = rows[(products < -0.02).logical_and(products > -2)][:200]
    return matrix(weight)


def with_large_biases(x: Tensor) -> nn.Linear:
    weight = torch.randn(V, D) / D**0.5
    weight[5] = 3 * x / x.norm()
    return matrix(weight, 500 + torch.rand(V))


@pytest.mark.parametrize("rounding", [1e-5, 1e-3, 1e-2, 0.1])
@pytest.mark.parametrize("made", [of_many_sizes, with_large_rows_across, with_large_biases])
def test_no_rounding_of_this_size_puts_another_token_first(made: Callable[[Tensor], nn.Linear], rounding: float):
    n_proven = 0
    for seed in range(12):
        torch.manual_seed(seed)
        x = torch.randn(D)
        linear = made(x)
        screen = Screen(linear)
        screen.rounding = rounding
        if (got := screen(x[None])) is None:
            continue
        token, n_proven = int(got[0]), n_proven + 1
        weight, bias = linear.weight.double(), torch.zeros(V) if linear.bias is None else linear.bias.double()
        logits = weight @ x.double() + bias
        off = rounding * (weight.norm(dim=1) * x.double().norm() + bias.abs())
        others = torch.arange(V) != token
        assert (logits[token] - off[token] > (logits + off)[others]).all()
    assert rounding > 1e-4 or n_proven > 9
