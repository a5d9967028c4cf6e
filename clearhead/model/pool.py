"""One vector of all states: the first, the last, their mean, or two of these."""

from typing import Literal

import torch
from torch import Tensor

from clearhead.model.ops import KINDS, Call, Kind, Sized

Pool = Literal["first", "second", "last", "mean", "first_and_mean"]


def pool(x: Tensor, valid: Tensor | None, how: Pool, *, skips: int = 0) -> Tensor:
    """b t d -> b d: the first real state, the last, the second cell, or the mean of all cells from `skips` on.

    "first_and_mean" joins two, b 2d. `valid` is b t, None for all.
    """
    if how == "first_and_mean":
        return torch.cat([pool(x, valid, "first"), pool(x, valid, "mean", skips=skips)], -1)
    x, valid = (x, valid) if how != "mean" else (x[:, skips:], None if valid is None else valid[:, skips:])
    b, t = x.shape[:2]
    valid = torch.ones(b, t, dtype=torch.bool, device=x.device) if valid is None else valid
    if how == "mean":
        return x.masked_fill(~valid[..., None], 0.0).sum(1) / valid.sum(1, keepdim=True).clamp(min=1)
    return x[torch.arange(b, device=x.device), 1 if how == "second" else end(valid, how)]


def end(valid: Tensor, how: Literal["first", "last"]) -> Tensor:
    """b t -> b: the first or the last real cell of each row."""
    number, t = torch.arange(valid.shape[1], device=valid.device), valid.shape[1]
    return torch.where(valid, number, t - 1).amin(1) if how == "first" else torch.where(valid, number, 0).amax(1)


def _pool(call: Call) -> Tensor:
    match call.op.how:
        case "mean":
            return call.x[0][int(call.op.by.get("skips", 0)) :].mean(0)
        case how:
            return call.x[0][{"first": 0, "second": 1, "last": -1}[how]]


def _joined_shape(call: Sized) -> tuple[int, ...]:
    return *call.x[0].shape[:-1], sum(one.shape[-1] for one in call.x)


KINDS |= {
    "pool": Kind(_pool, lambda call: call.x[0].shape[1:]),
    "join": Kind(lambda call: torch.cat(call.x, -1), _joined_shape),
}
