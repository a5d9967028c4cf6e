"""Dropout: how much it drops, what it keeps, and that it can be compiled."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.model.dropout import dropout
from tests.model import small
from tests.model.small import ids


@pytest.mark.parametrize("p", [0.002, 0.1, 0.3, 0.5, 0.999])
@pytest.mark.parametrize("shape", [(100, 10_001), (3, 7, 50_000)])
def test_it_drops_its_share_and_keeps_the_mean(p: float, shape: tuple[int, ...]) -> None:
    out = dropout(torch.ones(shape), p, True)
    kept = (out != 0).float().mean().item()
    assert kept == pytest.approx(1 - p, abs=1 / 256)
    assert 0 < kept < 1
    assert out.mean().item() == pytest.approx(1.0, abs=0.1 if p > 0.9 else 0.01)
    assert len(out.unique()) == 2


def test_neighbours_are_independent() -> None:
    keep = (dropout(torch.ones(1_000_000), 0.5, True) != 0).float() - 0.5
    for lag in range(1, 17):
        assert abs((keep[lag:] * keep[:-lag]).mean().item()) < 0.002


def test_off_outside_training_and_at_zero() -> None:
    x = torch.randn(3, 5)
    assert dropout(x, 0.5, False) is x
    assert dropout(x, 0.0, True) is x


def test_the_seed_decides() -> None:
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(dropout(torch.ones(1000), 0.5, True))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_gradient_is_the_mask(dtype: torch.dtype) -> None:
    x = torch.ones(3, 5, 7, dtype=dtype, requires_grad=True)
    out = dropout(x, 0.25, True)
    out.sum().backward()
    assert out.dtype == dtype
    assert x.grad is not None
    assert torch.equal(x.grad, out.detach())


def test_a_training_step_is_one_graph() -> None:
    graphs: list[torch.fx.GraphModule] = []

    def keep(module: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        graphs.append(module)
        return module.forward

    torch._dynamo.reset()
    network = small.encoder_decoder(dropout=0.1, attn_dropout=0.1, ffn_dropout=0.1).train()
    torch.compile(network, fullgraph=True, backend=keep)(ids(2, 5), ids(2, 4)).sum().backward()
    torch._dynamo.reset()
    assert len(graphs) == 1
