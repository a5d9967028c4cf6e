"""The interface of position encodings, and what they pass to attention."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.brief import brief
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
    """Four ways to encode positions. An encoding returns None for those that it does not use.

    A `_steps` method lists the ops of each way and returns the address of the result, or None. `path` is that of the
    encoding, and `numbers` the address of the position numbers.
    """

    learns_bias = False
    """Whether what is added to the scores has weights, for whose gradients PyTorch has no fused attention."""

    @abstractmethod
    def embedding(self, positions: Tensor) -> Tensor | None:
        """b t -> b t d: what to add to the token embedding."""

    @abstractmethod
    def embedding_steps(self, to: Steps, out: str, path: str, numbers: str) -> str | None:
        """List the ops of `embedding`."""

    @abstractmethod
    def rotation(self, positions: Tensor) -> Rotation | None:
        """b t -> how to rotate the heads' queries and keys."""

    @abstractmethod
    def rotation_steps(self, to: Steps, out: str, x: str, numbers: str) -> str | None:
        """List the ops of `rotation`, applied to queries or keys at `x`."""

    @abstractmethod
    def score_bias(self, query: Tensor, key: Tensor) -> Tensor | None:
        """b t, b s -> b|1 h t s: what to add to the scores."""

    @abstractmethod
    def score_bias_steps(self, to: Steps, out: str, path: str, numbers: str) -> str | None:
        """List the ops of `score_bias`."""

    @abstractmethod
    def relation(self, query: Tensor, key: Tensor) -> Relation | None:
        """b t, b s -> the distances, for attentions that have weights for them."""

    @abstractmethod
    def relation_steps(self, to: Steps, path: str) -> str | None:
        """List the ops of the vectors that a relation holds, which run once for all layers."""


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
