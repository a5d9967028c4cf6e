"""Cross-entropy over a vocabulary: from logits, or from states in chunks, of which few exist at a time."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.model.checks import check_labels, outside

CHUNK = 1 << 24
"""Logits made at once: about 64 MB (docs/log.md)."""
FEW = 1 << 22
"""Logits up to which PyTorch's own loss, which keeps them four times, is not replaced: 16 MB."""
NEVER = 1 << 62
"""More logits than any batch has."""
PIECE = 4096
"""Rows of a product that a CPU adds at once to a matrix of another type, because it copies them first."""
IGNORED = -100
"""The label of positions that do not count."""


def cross_entropy(logits: Tensor, labels: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """sum_i -log p_i(label_i), in nats and at least float32; n v, n   (smoothing: Szegedy et al. 2016, 7)

    IGNORED labels do not count. Raises UserError for any other label that is no class.
    """
    check_labels(labels, len(logits))
    try:
        logits = logits.to(summed_in(logits))
        return F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum", ignore_index=IGNORED)
    except IndexError:
        raise outside(labels, logits.shape[1]) from None


def summed_in(logits: Tensor) -> torch.dtype:
    """The type of the loss and its sums: float32, or float64 for logits in float64."""
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def linear_cross_entropy(
    states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, *, smoothing: float = 0.0, chunk: int = CHUNK
) -> Tensor:
    """cross_entropy(states @ W^T + b, labels), n d, v d, v, n, of `chunk` logits at a time.

    The forward pass makes the gradients too, while a chunk's logits are in the processor's cache. So the memory is
    that of the gradients of states and weight, not of n x v numbers kept four times.
    """
    check_labels(labels, len(states))
    kind = torch.get_autocast_dtype(states.device.type) if torch.is_autocast_enabled(states.device.type) else None
    weight = weight if kind is None else weight.to(kind)
    has_gradients = torch.is_grad_enabled()  # Autocast is off inside.
    try:
        return _Chunked.apply(states.to(weight.dtype), weight, bias, labels, smoothing, chunk, has_gradients)
    except RuntimeError as error:
        if "out of bounds" not in str(error):
            raise
        raise outside(labels, len(weight)) from None


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a^T b"""
    piece = PIECE if total.device.type == "cpu" else len(total)
    for rows, columns in zip(total.split(piece), a.split(piece, 1), strict=True):
        rows += columns.T @ b


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(  # pyrefly: ignore[bad-override]
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        smoothing: float,
        chunk: int,
        has_gradients: bool,
    ) -> Tensor:
        n, v, kind = len(states), len(weight), summed_in(weight)
        rows = max(1, chunk // v)
        wanted = [has_gradients and x is not None and x.requires_grad for x in (states, weight, bias)]
        d_states = torch.empty_like(states) if wanted[0] else None
        d_weight = torch.zeros_like(weight, dtype=kind) if wanted[1] else None
        d_bias = torch.zeros_like(bias, dtype=kind) if wanted[2] and bias is not None else None
        total = torch.zeros((), dtype=kind, device=states.device)
        counts = labels != IGNORED
        labels = labels.where(counts, 0)
        with torch.autocast(states.device.type, enabled=False):
            for start in range(0, n, rows):
                part = slice(start, start + rows)
                x, y, counted = states[part] * counts[part, None], labels[part, None], counts[part].to(kind)
                logits = (x @ weight.T).to(kind)
                if bias is not None:
                    logits += bias
                logs = torch.log_softmax(logits, -1, out=logits)
                total -= (1 - smoothing) * (logs.gather(1, y)[:, 0] @ counted)
                if smoothing:
                    total -= smoothing / v * (logs.sum(1) @ counted)
                if not any(wanted):
                    continue
                d_logits = logs.exp_()  # d loss / d logits = p - target
                if smoothing:
                    d_logits -= smoothing / v
                d_logits.scatter_add_(1, y, torch.full_like(y, smoothing - 1, dtype=d_logits.dtype))
                if d_bias is not None:
                    d_bias += counted @ d_logits
                small = d_logits.to(weight.dtype)
                del logits, logs, d_logits  # Frees memory for the next chunk, like `small` below.
                if d_states is not None:
                    torch.mm(small, weight, out=d_states[part]).mul_(counts[part, None])
                if d_weight is not None:
                    _add_product(d_weight, small, x)
                del small
        ctx.save_for_backward(*(x for x in (d_states, d_weight, d_bias) if x is not None))
        ctx.wanted, ctx.kinds = wanted, (states.dtype, weight.dtype, torch.float32 if bias is None else bias.dtype)
        return total

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        saved = iter(ctx.saved_tensors)
        made = [
            next(saved).mul_(outputs[0]).to(kind) if is_wanted else None  # In place: a table's gradient is large.
            for is_wanted, kind in zip(ctx.wanted, ctx.kinds, strict=True)
        ]
        return *made, None, None, None, None
