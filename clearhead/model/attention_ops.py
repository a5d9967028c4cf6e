"""The kinds of op that attention is made of, with its softmax."""

from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import Tensor

from clearhead.model.fast.blocked_attention import TILE
from clearhead.model.ops import (
    KINDS,
    Call,
    Kind,
    Mask,
    Sized,
    Sizes,
    its_inputs,
    only_sized,
    product_flops,
)

SHORT = 64
"""Keys below which a CPU takes the softmax of 16-bit scores in float32 (docs/log)."""
LANES = 16
"""Keys below which its kernel for float32 takes number by number."""


def softmax(scores: Tensor, sinks: Tensor | None = None) -> Tensor:
    """... h t s -> the same: exp(s_i) / (sum_j exp(s_j) + exp(sink)), one sink for each head if there are some."""
    if sinks is None:
        is_slow = scores.device.type == "cpu" and scores.dtype == torch.bfloat16 and scores.shape[-1] < SHORT
        return _SoftmaxOfShortRows.apply(scores) if is_slow else scores.softmax(-1)
    column = sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:-1], 1)
    return softmax(torch.cat([scores, column], -1))[..., :-1]


class _SoftmaxOfShortRows(torch.autograd.Function):
    """The softmax of 16-bit rows, computed in float32 and in rows of at least LANES numbers, rounded at the end."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:  # pyrefly: ignore[bad-override]
        weights = _wide(scores, float("-inf")).softmax(-1)
        ctx.save_for_backward(weights)
        return weights[..., : scores.shape[-1]].to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (weights,), (gradient,) = ctx.saved_tensors, gradients
        wide = torch._softmax_backward_data(_wide(gradient, 0.0), weights, -1, torch.float32)
        return wide[..., : gradient.shape[-1]].to(gradient.dtype)


def _wide(rows: Tensor, fill: float) -> Tensor:
    """... s -> ... max(s, LANES): the rows in float32, with `fill` after them."""
    n = rows.shape[-1]
    if n >= LANES:
        return rows.float()
    wide = torch.full((*rows.shape[:-1], LANES), fill)
    wide[..., :n] = rows
    return wide


def _width_of_weights(call: Sized) -> int:
    """Bytes of an attention weight: short rows are float32 on a CPU, as in `softmax`."""
    return 4 if call.x[0].shape[-1] < SHORT else call.x[0].width


def _is_tiled(call: Sized, keys: int) -> bool:
    """True if training computes these weights by tiles."""
    return "tile" in call.op.by and keys >= 2 * TILE


def _of_tiles(sizes: Sizes) -> Sizes:
    """The sizes of the tiles that replace h t t numbers."""
    heads, queries, _ = sizes.shape
    ends = [min(start + TILE, queries) for start in range(0, queries, TILE)]
    return replace(sizes, shape=(heads, sum((end - TILE * i) * end for i, end in enumerate(ends))))


def _saved_by_softmax(call: Sized) -> tuple[Sizes, ...]:
    """The result, plus one number a row for sinks; with tiles, the tiles, unless they are computed again."""
    if _is_tiled(call, call.out.shape[-1]):
        return () if call.op.by["again"] else (_of_tiles(call.out),)
    return (call.out, replace(call.out, shape=(*call.out.shape[:-1], 1))) if call.w else (call.out,)


def _saved_by_dropout(call: Sized) -> tuple[Sizes, ...]:
    """The dropout factors of all weights, or of the tiles."""
    return (_of_tiles(call.out) if _is_tiled(call, call.out.shape[-1]) else replace(call.out),)


def _saved_by_weights(call: Sized) -> tuple[Sizes, ...]:
    """The inputs of the product of weights and values; with tiles, only the values."""
    weights, values = call.x
    return (values,) if _is_tiled(call, weights.shape[-1]) else (weights, values)


def closed_cells(mask: Mask, queries: int, keys: int) -> Tensor:
    """t s, bool: the cells where attention may not go."""
    t, s = torch.arange(queries)[:, None], torch.arange(keys)
    closed = (s > t) if mask.causal else torch.zeros(queries, keys, dtype=torch.bool)
    return closed if mask.window is None else closed | ((s - t).abs() >= mask.window)


def _mask(call: Call) -> Tensor:
    assert call.mask is not None
    return call.x[0].masked_fill(closed_cells(call.mask, *call.x[0].shape[-2:]), float("-inf"))


def _project(call: Call) -> Tensor:
    heads, _, width = call.x[0].shape
    return torch.einsum("htk,dhk->htd", call.x[0], call.w[0].unflatten(1, (heads, width)))


def _sum_heads(call: Call) -> Tensor:
    return call.x[0].sum(0) + call.w[0] if call.w else call.x[0].sum(0)


def _saved_by_the_kernel(call: Sized) -> tuple[Sizes, ...]:
    """The kernel's inputs, its result, and the sum of each row's exponentials in float32."""
    return *call.x, call.out, Sizes(call.out.shape[:-1])


def _split_shape(call: Sized) -> tuple[int, ...]:
    (t, d), heads = call.x[0].shape, int(call.op.by["heads"])
    return heads, t, d // heads


def _repeat_shape(call: Sized) -> tuple[int, ...]:
    heads, t, k = call.x[0].shape
    return heads * int(call.op.by["times"]), t, k


KINDS |= {
    "split": Kind(lambda call: call.x[0].unflatten(-1, (int(call.op.by["heads"]), -1)).transpose(0, 1), _split_shape),
    "repeat": Kind(lambda call: call.x[0].repeat_interleave(int(call.op.by["times"]), 0), _repeat_shape),
    "matmul_nt": Kind(
        lambda call: call.x[0] @ call.x[1].mT,
        lambda call: (*call.x[0].shape[:-1], call.x[1].shape[-2]),
        its_inputs,
        product_flops,
    ),
    "mask": Kind(_mask),
    "softmax": Kind(lambda call: softmax(call.x[0], *call.w), saves=_saved_by_softmax, width=_width_of_weights),
    "dropout_of_tiles": Kind(only_sized, saves=_saved_by_dropout),
    "matmul": Kind(
        lambda call: call.x[0] @ call.x[1],
        lambda call: (*call.x[0].shape[:-1], call.x[1].shape[-1]),
        _saved_by_weights,
        product_flops,
    ),
    "resize": Kind(only_sized, lambda call: (*call.x[0].shape[:-1], int(call.op.by["width"]))),
    "project": Kind(_project, lambda call: (*call.x[0].shape[:-1], call.w[0][0]), its_inputs, product_flops),
    "sum_heads": Kind(_sum_heads, lambda call: call.x[0].shape[1:]),
    "attention": Kind(
        only_sized,
        saves=_saved_by_the_kernel,
        flops=lambda call: 4 * prod(call.out.shape) * call.x[1].shape[1],
    ),
}
