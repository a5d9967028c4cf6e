"""Torch generators from what they are for."""

import torch

from clearhead.randomness import key


def generator(*parts: str | int) -> torch.Generator:
    """A CPU generator seeded by `key(*parts)`: the same parts give the same numbers, in any process."""
    return torch.Generator().manual_seed(key(*parts))
