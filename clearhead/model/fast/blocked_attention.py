"""Attention in which no query reaches a later key, by tiles of queries, so that later keys are left out."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from clearhead.model.fast.activation_checkpointing import is_checkpointing
from clearhead.model.fast.dropout import dropout

TILE = 128
"""Queries of a tile. From two tiles on the products are cheaper, in spite of their number (docs/log)."""
AT_ONCE = 1 << 20
"""Scores that are computed at once, so that they stay in a CPU's cache."""


class _Tile(NamedTuple):
    """Some queries of some rows of a batch. They reach only the keys before `end`."""

    rows: slice
    queries: slice
    end: int
    is_last: bool
    """True if the tile reaches all keys."""


def _tiles(q: Tensor) -> Iterator[_Tile]:
    """The tiles of queries b h t k, those with the most keys first."""
    b, h, t, _ = q.shape
    n_rows = max(1, AT_ONCE // (h * TILE * t))
    for row in range(0, b, n_rows):
        for start in reversed(range(0, t, TILE)):
            end = min(start + TILE, t)
            yield _Tile(slice(row, row + n_rows), slice(start, end), end, end == t)


def blocked_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, unreachable: Tensor | None, *, is_causal: bool, rate: float = 0.0
) -> Tensor:
    """dropout(softmax(Q K^T + mask)) V of b h t k each, for a mask that closes all keys after a query.

    `mask` is b|1 1 t t. `is_causal`: it closes nothing else. `unreachable` is b|1 1 t 1: queries whose result is 0.
    `rate` is that of the dropout of weights, whose factors are kept.
    The weights of tiles are kept for the backward pass, or computed again inside `selective_checkpointing`. Gradients
    of keys and values are those of the tiles, each rounded to the type of the products and added up in float32.
    """
    kind = v.dtype
    if torch.is_autocast_enabled(q.device.type):
        kind = torch.get_autocast_dtype(q.device.type)
    q, k, v = (x.to(kind).contiguous() for x in (q, k, v))
    return _Tiled.apply(q, k, v, mask, unreachable, is_causal, rate, is_checkpointing())


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(  # pyrefly: ignore[bad-override]
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor,
        unreachable: Tensor | None,
        is_causal: bool,
        rate: float,
        again: bool,
    ) -> Tensor:
        z, factors, kept = torch.empty_like(v), list[Tensor](), list[Tensor]()
        ctx.is_causal, ctx.rate = is_causal, rate
        with torch.autocast(q.device.type, enabled=False):
            for tile in _tiles(q):
                weights = _weights(q, k, mask, unreachable, tile, is_causal)
                if not again:
                    kept.append(weights)
                if rate:
                    factors.append(dropout(torch.ones_like(weights), rate, training=True))
                    weights = weights * factors[-1]
                torch.matmul(weights, v[tile.rows, :, : tile.end], out=z[tile.rows, :, tile.queries])
        ctx.save_for_backward(q, k, v, mask, unreachable, *factors, *kept)
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # pyrefly: ignore[bad-override]
        (q, k, v, mask, unreachable, *kept), dz = ctx.saved_tensors, gradients[0].contiguous()
        tiles = list(_tiles(q))
        factors, kept = (kept[: len(tiles)], kept[len(tiles) :]) if ctx.rate else ([], kept)
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        wide, sums = torch.promote_types(k.dtype, torch.float32), list[Tensor]()
        for i, tile in enumerate(tiles):
            rows, at, end = tile.rows, tile.queries, tile.end
            weights = kept[i] if kept else _weights(q, k, mask, unreachable, tile, ctx.is_causal)
            d_weights, used = dz[rows, :, at] @ v[rows, :, :end].contiguous().mT, weights
            if factors:
                d_weights, used = d_weights.mul_(factors[i]), weights * factors[i]
            d_scores = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype)
            torch.matmul(d_scores, k[rows, :, :end], out=dq[rows, :, at])
            parts = d_scores.mT @ q[rows, :, at], used.mT @ dz[rows, :, at]
            if tile.is_last:
                sums = [part.to(wide) for part in parts]
            else:
                for total, part in zip(sums, parts, strict=True):
                    total[:, :, :end] += part
            if tile.queries.start == 0:
                dk[rows], dv[rows] = sums
        return dq, dk, dv, None, None, None, None, None


def _weights(q: Tensor, k: Tensor, mask: Tensor, unreachable: Tensor | None, tile: _Tile, is_causal: bool) -> Tensor:
    """The attention weights of a tile's queries over the keys before its end."""
    rows, at, end = tile.rows, tile.queries, tile.end
    # Contiguous, because the product is slow where it reads parts of keys transposed.
    scores = q[rows, :, at] @ k[rows, :, :end].contiguous().mT
    start = at.start if is_causal else 0
    # 0 and -inf are exact in any type.
    scores[..., start:] += (mask if len(mask) == 1 else mask[rows])[:, :, at, start:end].to(scores.dtype)
    weights = torch.softmax(scores, -1)
    if unreachable is not None:
        weights.masked_fill_((unreachable if len(unreachable) == 1 else unreachable[rows])[:, :, at], 0.0)
    return weights
