"""The encodings of positions that came before the sinusoids, which the engine does not have."""

from collections.abc import Sequence

import torch
from torch import Tensor


def normalised(positions: Sequence[int] | Tensor, length: int) -> Tensor:
    """p / length: in [0, 1], but the same step means another distance in every length."""
    return torch.as_tensor(positions, dtype=torch.float64) / length


def counted(positions: Sequence[int] | Tensor) -> Tensor:
    """p itself: without a bound."""
    return torch.as_tensor(positions, dtype=torch.float64)
