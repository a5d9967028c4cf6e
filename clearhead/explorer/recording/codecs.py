"""Numbers in fewer bytes: uint8 for pixels, float16 for tooltips. Each function states its largest error."""

import torch
from torch import Tensor

from clearhead.errors import UserError

LARGEST_HALF = 65504.0


def to_pixels(values: Tensor) -> tuple[Tensor, Tensor]:
    """round(255 x / max of its row), and the maxima: at most max / 510 off, and half a last digit of float32.

    Rows are along the last axis. Raises ValueError for a number that is negative or not finite.
    """
    if not bool((values >= 0).all() & values.isfinite().all()):
        raise ValueError("expected numbers that are finite and not negative")
    largest = values.float().amax(-1)
    share = values.double() / largest.double().clamp(min=torch.finfo(torch.float32).tiny)[..., None]
    return (share * 255).round().clamp(max=255).to(torch.uint8), largest


def to_half(values: Tensor) -> Tensor:
    """float16, at most |x| / 2048 + 2^-25 off; NaN stays NaN. Raises UserError for a number beyond its range."""
    most = float(values.nan_to_num().abs().max()) if values.numel() else 0.0
    if most > LARGEST_HALF:
        raise UserError(f"float16: expected numbers up to {LARGEST_HALF:g}, got {most:g}; try float32")
    return values.half()
