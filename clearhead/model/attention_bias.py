"""Which keys each query may attend to, how position enters the scores, and the interface of position encodings."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from clearhead.brief import brief
from clearhead.model.layout import Layout
from clearhead.model.mode import Part
from clearhead.model.ops import Steps


class Rotation:
    """x_rotated = x cos(p w) + (-x2, x1) sin(p w), on the first `width` of each head, halves paired."""

    def __init__(self, angle: Tensor, magnitude: float = 1.0) -> None:
        angle = torch.cat([angle, angle], -1)[:, None]
        self.cos, self.sin, self.width = angle.cos() * magnitude, angle.sin() * magnitude, angle.shape[-1]

    def __call__(self, x: Tensor) -> Tensor:
        """b h t k -> b h t k"""
        turned, kept = x[..., : self.width], x[..., self.width :]
        x1, x2 = turned.chunk(2, -1)
        turned = turned * self.cos.to(x.dtype) + torch.cat([-x2, x1], -1) * self.sin.to(x.dtype)
        return torch.cat([turned, kept], -1) if kept.shape[-1] else turned


@dataclass(frozen=True)
class Relation:
    """How far apart queries and keys are, for the attentions that make scores of it with weights of their own."""

    __repr__ = brief

    rows: Tensor
    """b|1 t s: the row of each distance."""
    states: Tensor | None = None
    """r d: a vector for each row, which all layers share."""


class PositionEncoding(Part, ABC):
    """Four ways to encode positions. An encoding returns None for the ways that it does not use.

    A `_steps` method lists the ops of each way and returns the address of the result, or None. `path` is that of the
    encoding, and `numbers` the address of the position numbers.
    """

    learns_bias = False
    """True if what is added to the scores has weights, for whose gradients PyTorch has no fused attention."""

    @abstractmethod
    def embedding(self, positions: Tensor) -> Tensor | None:
        """b t -> b t d: what to add to the token embedding."""

    @abstractmethod
    def embedding_steps(self, to: Steps, out: str, path: str, numbers: str) -> str | None:
        """Lists the ops of `embedding`."""

    @abstractmethod
    def rotation(self, positions: Tensor) -> Rotation | None:
        """b t -> how to rotate the heads' queries and keys."""

    @abstractmethod
    def rotation_steps(self, to: Steps, out: str, x: str, numbers: str) -> str | None:
        """Lists the ops of `rotation`, applied to queries or keys at `x`."""

    @abstractmethod
    def score_bias(self, query: Tensor, key: Tensor) -> Tensor | None:
        """b t, b s -> b|1 h t s: what to add to the scores."""

    @abstractmethod
    def score_bias_steps(self, to: Steps, out: str, path: str, numbers: str) -> str | None:
        """Lists the ops of `score_bias`."""

    @abstractmethod
    def relation(self, query: Tensor, key: Tensor) -> Relation | None:
        """b t, b s -> the distances, for attentions that have weights for them."""

    @abstractmethod
    def relation_steps(self, to: Steps, path: str) -> str | None:
        """Lists the ops of the vectors that a relation holds, which run once for all layers."""


class NotAdded(PositionEncoding):
    """An encoding that adds nothing to the embedding."""

    def embedding(self, positions: Tensor) -> None:
        return None

    def embedding_steps(self, to: Steps, out: str, path: str, numbers: str) -> None:
        return None


class NotTurned(PositionEncoding):
    """Queries and keys are not rotated."""

    def rotation(self, positions: Tensor) -> None:
        return None

    def rotation_steps(self, to: Steps, out: str, x: str, numbers: str) -> None:
        return None


class NotScored(PositionEncoding):
    """An encoding that adds nothing to the scores."""

    def score_bias(self, query: Tensor, key: Tensor) -> None:
        return None

    def score_bias_steps(self, to: Steps, out: str, path: str, numbers: str) -> None:
        return None


class NotRelated(PositionEncoding):
    """No part of attention reads distances by itself."""

    def relation(self, query: Tensor, key: Tensor) -> None:
        return None

    def relation_steps(self, to: Steps, path: str) -> None:
        return None


def bucket(distance: Tensor, n: int, max_distance: int, *, causal: bool) -> Tensor:
    """key - query -> 0..n-1; exact if near, logarithmic up to max_distance, and one bucket beyond."""
    first = torch.zeros_like(distance)
    if causal:
        distance = (-distance).clamp(min=0)
    else:
        n //= 2
        first = (distance > 0).long() * n
        distance = distance.abs()
    exact = n // 2
    growth = math.log(max_distance / exact)
    far = exact + (torch.log(distance.clamp(min=1).float() / exact) / growth * (n - exact)).long()
    return first + torch.where(distance < exact, distance, far.clamp(max=n - 1))


@dataclass(frozen=True)
class AttentionBias:
    """Which keys each query may attend to, and how position enters the scores."""

    __repr__ = brief

    mask: Tensor | None = None
    """b|1 1 t s: 0 for allowed keys and -inf for others; None if all are allowed."""
    unreachable: Tensor | None = None
    """b|1 1 t 1, bool: queries without an allowed key, whose result is 0; None if there can be none."""
    causal: bool = False
    """True if the mask is exactly `s <= t`, which the fused kernel can apply without a mask."""
    is_lower: bool = False
    """True if the mask closes all keys after a query, and there are as many keys as queries."""
    score_bias: Tensor | None = None
    rotation: Rotation | None = None
    """The rotation of the queries, and of the keys of the same positions."""
    relation: Relation | None = None
    """Distances of queries and keys, for an attention that has weights for them."""
    valid: Tensor | None = None
    """b s, bool: keys that are no padding; None for all."""
    documents: Sequence[Tensor] = ()
    """w l each: the cells of documents of one length, if each of them is attended to alone, without a mask."""

    @classmethod
    def between(
        cls,
        queries: Layout,
        keys: Layout,
        *,
        causal: bool = False,
        window: int | None = None,
        positions: PositionEncoding | None = None,
        dtype: torch.dtype = torch.float32,
        fused: bool = False,
    ) -> Self:
        """The bias from queries to keys under causality, a local window, groups, padding and document borders.

        With `fused`, plain causality gets no mask of t x t numbers, because the kernel applies it by itself.
        """
        allowed, may_be_empty = None, False
        device = queries.positions.device
        (_, t), (_, s) = queries.grid, keys.grid
        # A packed batch pads on the right, in the future of every token. So the causal mask is enough.
        padding_is_future = causal and keys.rows is not None
        if causal and (t > 1 or window is not None):
            q, k = queries.start + torch.arange(t, device=device)[:, None], torch.arange(s, device=device)
            allowed = (k <= q)[None]
            if queries.groups is not None and keys.groups is not None:
                together = (queries.groups[:, :, None] == keys.groups[:, None, :]) & (keys.groups > 0)[:, None, :]
                allowed = allowed | together
        if keys.valid is not None and not padding_is_future:
            allowed = _both(allowed, keys.valid[:, None, :])
            # A real query reaches at least itself under causality.
            may_be_empty = keys.rows is None and not (causal and queries.valid is None)
        if window is not None:
            distance = queries.positions[:, :, None] - keys.positions[:, None, :]
            allowed = _both(allowed, (distance if causal else distance.abs()) < window)
            may_be_empty = may_be_empty or not causal
        if queries.documents is not None and keys.documents is not None:
            allowed = _both(allowed, queries.documents[:, :, None] == keys.documents[:, None, :])
            may_be_empty = True
        grouped = queries.groups is not None
        masked = grouped or (keys.valid is not None and not padding_is_future) or queries.documents is not None
        plain_causal = causal and t == s and window is None and not masked
        rotation = positions.rotation(queries.positions) if positions else None
        bias = positions.score_bias(queries.positions, keys.positions) if positions else None
        relation = positions.relation(queries.positions, keys.positions) if positions else None
        mask = unreachable = None
        if allowed is not None and not (fused and plain_causal and bias is None and relation is None):
            allowed = allowed[:, None]
            unreachable = ~allowed.any(-1, keepdim=True) if may_be_empty else None
            closed = ~allowed if unreachable is None else ~(allowed | unreachable)
            mask = torch.zeros(closed.shape, device=device, dtype=dtype).masked_fill_(closed, float("-inf"))
        return cls(
            mask, unreachable, plain_causal, causal and t == s and not grouped, bias, rotation, relation, keys.valid
        )

    def repeated(self, n: int) -> Self:
        """The same bias with each row of queries repeated n times."""
        mask, unreachable, valid = (
            x.repeat_interleave(n, 0) if x is not None and len(x) > 1 else x
            for x in (self.mask, self.unreachable, self.valid)
        )
        return replace(self, mask=mask, unreachable=unreachable, valid=valid)


@dataclass(frozen=True)
class BiasSteps:
    """The steps by which an `AttentionBias` changes queries, keys and scores."""

    mask: str
    """Its name in `Steps.masks`."""
    keys: str
    """The stack whose states the keys come from."""
    positions: PositionEncoding | None = None
    path: str = ""
    """The path of the encoding."""
    numbers: str = ""
    """The address of the position numbers."""
    states: str = ""
    """The address of the vectors of the distances, if there are any."""

    def rotated(self, to: Steps, out: str, x: str) -> str | None:
        """Lists the rotation of queries or keys; returns `out`, or None if there is none."""
        return self.positions.rotation_steps(to, out, x, self.numbers) if self.positions else None

    def biased(self, to: Steps, at: str, scores: str) -> str:
        """Lists the addition of a position bias to the scores; returns the sum's address, or `scores` without bias."""
        bias = self.positions.score_bias_steps(to, f"{at}.bias", self.path, self.numbers) if self.positions else None
        return scores if bias is None else to.do(at, "add", scores, bias)


def _both(a: Tensor | None, b: Tensor) -> Tensor:
    return b if a is None else a & b
