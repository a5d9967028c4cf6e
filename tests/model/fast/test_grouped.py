"""Weights rounded in groups: their error, their gradients, and their size."""

import pytest
import torch
from torch import nn

from clearhead.model.fast.grouped import GROUP, SMALLER, GroupedLinear, restored, rounded


@pytest.mark.parametrize("bits", [8, 4])
def test_each_group_has_the_scale_with_the_least_error(bits):
    """Of all integers of so many bits, the lowest one too."""
    groups = torch.randn(64, 8, GROUP)
    largest, errors = 2 ** (bits - 1) - 1, list[torch.Tensor]()
    for factor in SMALLER[bits]:
        scale = factor * groups.abs().amax(2, keepdim=True) / largest
        errors.append(((groups / scale).round().clamp(-largest - 1, largest) * scale - groups).square().sum(2))
    integers, scale = rounded(groups.flatten(1), bits)
    assert integers.numel() * integers.element_size() == groups.numel() * bits // 8
    found = (restored(integers, scale, 8 * GROUP).view_as(groups) - groups).square().sum(2)
    torch.testing.assert_close(found, torch.stack(errors).amin(0))


def test_equal_numbers_stay_equal_and_zeros_zero():
    for bits in (8, 4):
        weight = torch.cat([torch.zeros(2, GROUP), torch.full((2, GROUP), 0.7)])
        integers, scale = rounded(weight, bits)
        torch.testing.assert_close(restored(integers, scale, GROUP), weight)


@pytest.mark.parametrize("bits", [8, 4])
def test_the_product_and_its_gradient_are_those_of_the_restored_matrix(bits):
    torch.manual_seed(0)
    linear = nn.Linear(40, 12).double()
    made = GroupedLinear(linear, bits)
    x = torch.randn(3, 5, 40, dtype=torch.float64, requires_grad=True)
    made(x).sin().sum().backward()
    found, x.grad = x.grad, None
    expected = nn.functional.linear(x, made.effective_weight(), linear.bias)
    expected.sin().sum().backward()
    torch.testing.assert_close(made(x), expected)
    torch.testing.assert_close(found, x.grad)
    with torch.autocast("cpu", torch.bfloat16):
        assert made(x.float()).dtype == torch.bfloat16
        made(x.float()).float().sum().backward()
