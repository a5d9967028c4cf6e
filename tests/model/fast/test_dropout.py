"""Dropout: how much it drops, what it keeps, and that it can be compiled."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.model.fast.dropout import ROW, _drawn, _mixed, dropout
from tests.model import small
from tests.model.small import ids

TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("p", [0.002, 0.1, 0.3, 0.5, 0.999])
@pytest.mark.parametrize("shape", [(100, 10_001), (3, 7, 50_000)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_drops_its_share_and_keeps_the_mean(p: float, shape: tuple[int, ...], dtype: torch.dtype):
    out = dropout(torch.ones(shape, dtype=dtype), p, True).float()
    kept = (out != 0).float().mean().item()
    assert kept == pytest.approx(1 - p, abs=1 / 256)
    assert 0 < kept < 1
    assert out.mean().item() == pytest.approx(1.0, abs=0.1 if p > 0.9 else 0.01)
    assert len(out.unique()) == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_elements_are_independent(dtype: torch.dtype):
    keep = (dropout(torch.ones(1 << 20, dtype=dtype), 0.5, True) != 0).float() - 0.5
    for lag in (*range(1, 17), 4 * ROW, 8 * ROW, 1 << 19):
        assert abs((keep[lag:] * keep[:-lag]).mean().item()) < 0.002


def test_rectangles_of_words_are_independent():
    # What two rows of words share with two columns of them, before their bits are mixed.
    bits = _mixed(_drawn(ROW)[:, None], _drawn(ROW)).view(torch.uint8).view(ROW, ROW, 8) / 127.5 - 1
    for down, across in ((1, 1), (7, 100), (512, 512)):
        corners = bits[down:, across:] * bits[:-down, across:] * bits[down:, :-across] * bits[:-down, :-across]
        assert abs(corners.mean().item()) < 0.001


@pytest.mark.parametrize("shape", [(0,), (1,), (7, 3)])
def test_any_size(shape: tuple[int, ...]):
    for dtype in TYPES:
        assert dropout(torch.ones(shape, dtype=dtype), 0.1, True).shape == shape


def test_off_outside_training_and_at_zero():
    x = torch.randn(3, 5)
    assert dropout(x, 0.5, False) is x
    assert dropout(x, 0.0, True) is x


def test_the_seed_decides():
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(dropout(torch.ones(1000), 0.5, True))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


@pytest.mark.parametrize("dtype", TYPES)
def test_gradient_is_the_mask(dtype: torch.dtype):
    x = torch.ones(3, 5, 7, dtype=dtype, requires_grad=True)
    out = dropout(x, 0.25, True)
    out.sum().backward()
    assert out.dtype == dtype
    assert x.grad is not None
    assert torch.equal(x.grad, out.detach())


def test_a_training_step_is_one_graph():
    graphs: list[torch.fx.GraphModule] = []

    def keep(module: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        graphs.append(module)
        return module.forward

    torch._dynamo.reset()
    network = small.encoder_decoder(dropout=0.1, attn_dropout=0.1, ffn_dropout=0.1).train()
    torch.compile(network, fullgraph=True, backend=keep)(ids(2, 5), ids(2, 4)).sum().backward()
    torch._dynamo.reset()
    assert len(graphs) == 1
