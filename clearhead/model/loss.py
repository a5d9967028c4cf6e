"""Cross-entropy over a vocabulary: from logits, or from states in chunks, one after another."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.brief import shape_of
from clearhead.errors import UserError

CHUNK = 1 << 26
"""Logits made at once in 16 bits, in 32 bits half as many: 128 MB (docs/log)."""
MANY = 1 << 24
"""Logits up to which compiled code, which chunks divide, makes all at once."""
FEW = 1 << 22
"""Logits up to which PyTorch's own loss, which keeps them four times, is not replaced: 16 MB."""
NEVER = 1 << 62
"""More logits than any batch has."""
WIDE = 1 << 19
"""Logits that a CPU takes in float32 at once, so that they stay in its cache."""
PIECE = 4096
"""Rows of a product that a CPU puts at once into a matrix of another type, because it copies them first."""
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
    """cross_entropy(states @ W^T + b, labels), n d, v d, v, n, of `chunk` logits at a time, in 32 bits half as many.

    The forward pass makes the gradients too, those of the logits in place of the logits. So the memory is that of the
    gradients of states and weight and of one chunk in the type of the product, not of n x v numbers kept four times.
    """
    check_labels(labels, len(states))
    is_mixed = torch.is_autocast_enabled(states.device.type)
    kind = torch.get_autocast_dtype(states.device.type) if is_mixed else weight.dtype
    has_gradients = torch.is_grad_enabled()  # Autocast is off inside.
    try:
        return _Chunked.apply(states.to(kind), weight, bias, labels, smoothing, chunk, has_gradients)
    except RuntimeError as error:
        if "out of bounds" not in str(error):
            raise
        raise outside(labels, len(weight)) from None


def _put_product(total: Tensor, a: Tensor, b: Tensor, *, adds: bool) -> None:
    """total = a^T b, or with `adds` total += a^T b"""
    piece = PIECE if total.device.type == "cpu" else len(total)
    for rows, columns in zip(total.split(piece), a.split(piece, 1), strict=True):
        if adds:
            rows += columns.T @ b
        else:
            rows.copy_(columns.T @ b)


def _differentiate(
    logits: Tensor, labels: Tensor, counted: Tensor, bias: Tensor | None, d_bias: Tensor | None, smoothing: float
) -> Tensor:
    """sum_i counted_i * loss_i   n v, n, n, v, v.   Writes d loss_i / d logits over the logits, adds to `d_bias`."""
    v, kind = logits.shape[1], summed_in(logits)
    total = torch.zeros((), dtype=kind, device=logits.device)
    rows = max(1, WIDE // v) if logits.device.type == "cpu" else len(logits)
    parts = (logits.split(rows), labels[:, None].split(rows), counted.split(rows))
    for part, y, counts in zip(*parts, strict=True):
        x = part.to(kind)
        if bias is not None:
            x += bias
        own, top = x.gather(1, y), x.amax(1, keepdim=True)
        losses = (smoothing - 1) * own
        if smoothing:
            losses -= smoothing * x.mean(1, keepdim=True)
        p = torch.softmax(x, 1, out=x)
        log_sum = top - p.amax(1, keepdim=True).log()  # The largest of p is exp(top) / sum.
        total += (losses + log_sum)[:, 0] @ counts
        if smoothing:
            p -= smoothing / v
        p.scatter_(1, y, (own - log_sum).exp() + (smoothing - 1 - smoothing / v))  # p - target
        if d_bias is not None:
            d_bias += counts @ p
        if p is not part:
            part.copy_(p)
    return total


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
        kind = summed_in(states)
        wanted = [has_gradients and x is not None and x.requires_grad for x in (states, weight, bias)]
        d_states = torch.empty_like(states) if wanted[0] else None
        d_weight: Tensor | None = None
        d_bias = torch.zeros_like(bias, dtype=kind) if wanted[2] and bias is not None else None
        total = torch.zeros((), dtype=kind, device=states.device)
        counts = labels != IGNORED
        labels = labels.where(counts, 0)
        with torch.autocast(states.device.type, enabled=False):
            rows = max(1, chunk // (1 if states.dtype.itemsize == 2 else 2) // len(weight))
            chunk_of = states.new_empty(min(rows, len(states)), len(weight))
            matrix: Tensor | None = weight.to(states.dtype)  # After the chunk, so that its memory joins what is free.
            for start in range(0, len(states), rows):
                part = slice(start, start + rows)
                assert matrix is not None
                x = states[part] * counts[part, None]
                d_logits = torch.mm(x, matrix.T, out=chunk_of[: len(x)])  # They are the logits first.
                total += _differentiate(d_logits, labels[part], counts[part].to(kind), bias, d_bias, smoothing)
                if d_states is not None:
                    torch.mm(d_logits, matrix, out=d_states[part]).mul_(counts[part, None])
                if start + rows >= len(states):
                    matrix = None  # Frees its memory for the gradient.
                if wanted[1]:
                    d_weight = torch.empty_like(weight, dtype=kind) if d_weight is None else d_weight
                    _put_product(d_weight, d_logits, x, adds=start > 0)
        if wanted[1] and d_weight is None:
            d_weight = torch.zeros_like(weight, dtype=kind)
        ctx.save_for_backward(*(x for x in (d_states, d_weight, d_bias) if x is not None))
        ctx.wanted = [x is not None for x in (d_states, d_weight, d_bias)]
        ctx.kinds = (states.dtype, weight.dtype, torch.float32 if bias is None else bias.dtype)
        return total

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        saved = iter(ctx.saved_tensors)
        made = [
            next(saved).mul_(outputs[0]).to(kind) if is_wanted else None  # In place: a table's gradient is large.
            for is_wanted, kind in zip(ctx.wanted, ctx.kinds, strict=True)
        ]
        return *made, None, None, None, None


def check_labels(labels: Tensor, n: int) -> None:
    """Raises UserError unless there is one whole number for each of n distributions."""
    if not isinstance(labels, Tensor) or labels.shape != (n,) or labels.dtype != torch.int64:
        what = "one for each real position, or for each sequence where the head says one class"
        raise UserError(f"labels: expected int64 of {n}, {what}, got {shape_of(labels)}")


def outside(labels: Tensor, n_classes: int) -> UserError:
    """The message about labels that a loss refused."""
    wrong = labels[(labels < 0) | (labels >= n_classes)]
    return UserError(f"labels: expected numbers in 0..{n_classes - 1}, got {int(wrong[0])}")
