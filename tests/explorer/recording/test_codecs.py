"""Numbers are as far off as the codecs say."""

import pytest
import torch

from clearhead.explorer.recording.recording import to_half, to_pixels
from tests.explorer.asking import from_pixels


@pytest.mark.parametrize("spread", [1e-6, 1.0, 1e6])
def test_pixels_are_within_a_510th_of_the_row_maximum(spread: float):
    torch.manual_seed(0)
    values = torch.rand(3, 40, 50) * spread * torch.rand(3, 40, 1)
    values[0, 0] = 0.0
    pixels, largest = to_pixels(values)
    assert pixels.dtype == torch.uint8
    wrong = (from_pixels(pixels, largest).double() - values.double()).abs()
    bound = largest.double()[..., None] * (1 / 510 + 2**-23)
    assert bool((wrong <= bound).all())
    assert float((wrong / bound)[1:].max()) > 0.99  # the bound is no larger than it need be


@pytest.mark.parametrize("spread", [1e-7, 1e-3, 1.0, 6e4])
def test_halves_are_within_their_bound(spread: float):
    torch.manual_seed(1)
    values = (2 * torch.rand(2000) - 1) * spread
    wrong = (to_half(values).double() - values.double()).abs()
    assert bool((wrong <= values.double().abs() / 2048 + 2**-25).all())


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_pixels_are_of_weights(bad: float):
    with pytest.raises(ValueError, match="not negative"):
        to_pixels(torch.tensor([0.0, bad]))
