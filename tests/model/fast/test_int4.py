"""Four-bit matrices compute the product of the rounded numbers, or leave it to maps that any device can compute."""

import pytest
import torch
from torch import nn

from clearhead.generation import complete
from clearhead.model.fast import int4
from clearhead.model.fast.grouped import GroupedLinear
from clearhead.model.fast.int4 import GROUP, SHARES, Int4Linear, has_kernel, rounded, rounded_to_four_bits
from clearhead.model.linear import RoundedTable
from clearhead.recipe.generation import GenerationConfig
from clearhead.trace import trace
from tests.model import small
from tests.model.small import ids, matrix

HALF = 2.0**-8
"""bfloat16's relative step."""
needs_kernel = pytest.mark.skipif(not has_kernel(), reason="a processor without products of four bits")


def test_each_group_has_the_range_with_the_least_error():
    groups = torch.randn(64, 8, GROUP)
    middle, half = (groups.amax(2) + groups.amin(2)) / 2, (groups.amax(2) - groups.amin(2)) / 2
    errors = list[torch.Tensor]()
    for share in SHARES:
        scale = (2 * share * half / 15).bfloat16().float()[..., None]
        zero = ((middle - share * half)[..., None] + 8 * scale).bfloat16().float()
        nearest = ((groups - zero) / scale + 8).round().clamp(0, 15)
        errors.append(((nearest - 8) * scale + zero - groups).square().sum(2))
    integers, scales = rounded(groups.flatten(1))
    scale, zero = (scales[..., i].float().T[..., None] for i in (0, 1))
    found = ((integers.unflatten(1, (-1, GROUP)) - 8) * scale + zero - groups).square().sum(2)
    torch.testing.assert_close(found, torch.stack(errors).amin(0))
    assert len(torch.stack(errors).argmin(0).unique()) >= 3


@needs_kernel
@torch.inference_mode()
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("n_rows", [1, 5, 64])
@pytest.mark.parametrize("shape", [(16, 24), (288, 768), (513, 70)])
def test_int4_is_the_product_of_rounded_numbers(shape: tuple[int, int], n_rows: int, bias: bool):
    with torch.inference_mode(False):
        plain = matrix(shape, bias=bias, by_inputs=False)
    four, x = Int4Linear(plain), torch.randn(2, n_rows, shape[0])
    weight = four.effective_weight()
    assert weight.shape == plain.weight.shape
    assert 0 < (weight - plain.weight).norm() < 0.1 * plain.weight.norm()
    product = x.bfloat16().double() @ weight.double().T
    expected = product + (0 if plain.bias is None else plain.bias)
    assert four(x).dtype == torch.float32
    assert (four(x) - expected).norm() <= 2 * HALF * product.norm()


@needs_kernel
@torch.no_grad()
@pytest.mark.parametrize("name", ["decoder", "encoder_decoder"])
def test_int4_network(name: str):
    network = getattr(small, name)()
    inputs = [ids(2, 5)] if name == "decoder" else [ids(2, 6), ids(2, 5)]
    exact = network(*inputs)
    rounded_to_four_bits(network)
    assert not [m for m in network.modules() if type(m) is nn.Linear]
    assert isinstance(network.last_stack.lookup, RoundedTable), "tables have eight bits"
    assert 0 < (network(*inputs) - exact).norm() < 0.4 * exact.norm()
    with trace(network) as t:
        seen = network(*inputs)
    assert (seen - network(*inputs)).norm() < 0.05 * exact.norm()
    assert "decoder.blocks.1.attn.heads" in t
    config = GenerationConfig(max_new_tokens=6, start_id=0)
    [[best]] = complete(network, [[1, 2]], source=[[3]] if network.encoder else None, config=config)
    assert len(best.tokens) == 6


@needs_kernel
def test_gradients_pass_through_the_restored_matrix():
    four = Int4Linear(matrix((40, 12), bias=True, by_inputs=False))
    x = torch.randn(3, 40, requires_grad=True)
    four(x).sum().backward()
    torch.testing.assert_close(x.grad, four.effective_weight().sum(0).expand(3, -1))


def test_without_the_kernel_any_device_computes(monkeypatch):
    monkeypatch.setattr(int4, "has_kernel", lambda: False)
    network = small.decoder()
    rounded_to_four_bits(network)
    assert {type(m) for m in network.modules() if isinstance(m, (Int4Linear, GroupedLinear))} == {GroupedLinear}
