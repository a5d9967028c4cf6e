import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.model.loss import IGNORED, cross_entropy, linear_cross_entropy

N, D, V = 13, 8, 30


def case(dtype: torch.dtype, *, bias: bool) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    draw = torch.Generator().manual_seed(0)
    states, weight = (torch.randn(n, D, generator=draw, dtype=dtype).requires_grad_() for n in (N, V))
    b = torch.randn(V, generator=draw, dtype=dtype).requires_grad_() if bias else None
    return states, weight, b, torch.randint(0, V, (N,), generator=draw)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("chunk", [1, 4 * V, 10 * V, 1000 * V])
def test_chunks_give_the_loss_and_the_gradients_of_all_logits(smoothing: float, bias: bool, chunk: int):
    states, weight, b, labels = case(torch.float32, bias=bias)
    wanted = cross_entropy(F.linear(states, weight, b), labels, smoothing=smoothing)
    parts = [x for x in (states, weight, b) if x is not None]
    gradients = torch.autograd.grad(wanted * 3, parts)
    got = linear_cross_entropy(states, weight, b, labels, smoothing=smoothing, chunk=chunk)
    torch.testing.assert_close(got, wanted)
    torch.testing.assert_close(torch.autograd.grad(got * 3, parts), gradients)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [4 * V, 1000 * V])
@pytest.mark.parametrize("ignored", [3, slice(None)])
def test_float64_stays_exact_and_ignored_labels_do_not_count(ignored: int | slice, chunk: int, smoothing: float):
    """For comparisons with other libraries; anything smaller is summed in float32."""
    states, weight, b, labels = case(torch.float64, bias=True)
    labels[ignored] = IGNORED
    wanted = F.cross_entropy(F.linear(states, weight, b), labels, reduction="sum", label_smoothing=smoothing)
    parts = [x for x in (states, weight, b) if x is not None]
    gradients = torch.autograd.grad(wanted, parts)
    for got in (
        linear_cross_entropy(states, weight, b, labels, chunk=chunk, smoothing=smoothing),
        cross_entropy(F.linear(states, weight, b), labels, smoothing=smoothing),
    ):
        torch.testing.assert_close(got, wanted, rtol=1e-13, atol=0)
        torch.testing.assert_close(torch.autograd.grad(got, parts), gradients, rtol=1e-12, atol=1e-14)


def test_under_autocast_products_are_bfloat16_and_gradients_the_parameters_own_type():
    states, weight, _, labels = case(torch.float32, bias=False)
    exact = cross_entropy(F.linear(states, weight), labels)
    with torch.autocast("cpu", torch.bfloat16):
        got = linear_cross_entropy(states, weight, None, labels, chunk=4 * V)
    gradients = torch.autograd.grad(got, (states, weight))
    assert {x.dtype for x in (got, *gradients)} == {torch.float32}
    assert got.item() != exact.item()
    assert got.item() == pytest.approx(exact.item(), rel=0.02)


def test_nothing_is_kept_for_a_loss_without_gradients(monkeypatch):
    grad_buffers: list[Tensor] = []
    for made in ("zeros_like", "empty_like"):
        monkeypatch.setattr(torch, made, lambda x, **_: grad_buffers.append(x))
    states, weight, _, labels = case(torch.float32, bias=False)
    with torch.no_grad():
        got = linear_cross_entropy(states, weight, None, labels, chunk=4 * V)
    assert not got.requires_grad
    assert grad_buffers == []
    torch.testing.assert_close(got, cross_entropy(F.linear(states, weight), labels))
