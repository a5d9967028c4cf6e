"""The encodings of positions that came before the sinusoids, which the engine does not have."""

from collections.abc import Sequence

import torch
from torch import Tensor

from clearhead.model import Transformer
from clearhead.model.positions import LearnedEncoding


def normalised(positions: Sequence[int] | Tensor, length: int) -> Tensor:
    """p / length: in [0, 1], but the same step means another distance in every length."""
    return torch.as_tensor(positions, dtype=torch.float64) / length


def counted(positions: Sequence[int] | Tensor) -> Tensor:
    """p itself: without a bound."""
    return torch.as_tensor(positions, dtype=torch.float64)


def fix_positions(network: Transformer, table: Tensor) -> None:
    """Replaces the learned positions of a network by these vectors, t d, and freezes them."""
    encoding = network.last_stack.positions
    assert isinstance(encoding, LearnedEncoding)
    encoding.table.weight.data = table
    encoding.table.weight.requires_grad_(False)
