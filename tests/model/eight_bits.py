"""Eight-bit products on every processor: those of the kernel where its sums are exact, otherwise their definition."""

import pytest
from torch import Tensor

from clearhead.model.fast import int8


def make_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets `int8.product` add up exactly on a processor whose kernel saturates 16 bits."""
    if not int8.sums_are_exact():
        monkeypatch.setattr(int8, "product", defined_product)


def defined_product(levels: Tensor, packed: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    """What `int8.product` promises: exact sums of integers, rounded to float32 as the kernel rounds them."""
    assert not offset.any()
    sums = (levels.long() - (int8.LEVELS + 1)) @ packed.to_dense().long()
    return sums.float() * (1 / int8.LEVELS) * scale
