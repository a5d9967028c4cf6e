"""Bytes are as far off as they say, and nothing that is not finite is ever among them."""

import pytest
import torch

from clearhead.errors import UserError
from clearhead.explorer.codecs import decode, encode, from_pixels, to_half, to_pixels


@pytest.mark.parametrize("spread", [1e-6, 1.0, 1e6])
def test_pixels_are_within_a_510th_of_the_row_maximum(spread: float) -> None:
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
def test_halves_are_within_their_bound(spread: float) -> None:
    torch.manual_seed(1)
    values = (2 * torch.rand(2000) - 1) * spread
    wrong = (decode(encode(values, "float16"), "float16", (2000,)).double() - values.double()).abs()
    assert bool((wrong <= values.double().abs() / 2048 + 2**-25).all())


def test_float32_is_exact_and_little_endian() -> None:
    values = torch.randn(3, 5)
    assert torch.equal(decode(encode(values.T, "float32"), "float32", (5, 3)), values.T)
    assert encode(torch.tensor([1.0]), "float32") == b"\x00\x00\x80\x3f"


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_refused(bad: float) -> None:
    values = torch.tensor([0.0, bad])
    for attempt in (lambda: to_pixels(values), lambda: encode(values, "float32"), lambda: encode(values, "float16")):
        with pytest.raises(ValueError, match="not finite"):
            attempt()


def test_what_a_codec_cannot_say_is_refused() -> None:
    with pytest.raises(ValueError, match="not negative"):
        to_pixels(torch.tensor([-1.0]))
    with pytest.raises(UserError, match="float16: expected numbers up to 65504, got 70000; try float32"):
        to_half(torch.tensor([70000.0]))
    with pytest.raises(UserError, match="expected 16 bytes, got 4"):
        decode(b"1234", "float32", (2, 2))
