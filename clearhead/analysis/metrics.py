"""Metrics: one number of a network's result for each row of a batch, which circuits and effects explain."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.brief import brief
from clearhead.errors import UserError
from clearhead.model import Layout
from clearhead.model.heads import pool

Metric = Callable[[Tensor, Layout], Tensor]
"""The network's result (logits b t v or b v, states b t d, or vectors b d) and its layout -> b. The batch may be
repeated, one copy after the other.
"""
Vectors = Callable[[Tensor, Layout], Tensor]
"""The states of a network without logits, b t d, or its vectors, b d, and the layout -> b d."""
Ids = int | Sequence[int]
"""An id, or one for each row of the batch."""
LEAST = 0.1
"""The smallest difference of two runs, in logits, that is divided into shares: the odds change by a tenth."""


@dataclass(frozen=True)
class LogitDifference:
    """logit[answer] - logit[minus], or logit[answer] alone."""

    answer: Ids
    minus: Ids | None = None
    position: int | None = None
    """Position in the last stack, from its end if negative; None for the last real one. Unused if the head pools."""

    def __call__(self, result: Tensor, layout: Layout) -> Tensor:
        return self.of(at(result, layout, self.position))

    def of(self, logits: Tensor) -> Tensor:
        """b v -> b: the difference of logits at one position."""
        right = chosen(logits, self.answer)
        return right if self.minus is None else right - chosen(logits, self.minus)


@dataclass(frozen=True)
class LogProbability:
    """log softmax(logits)[answer], in nats."""

    answer: Ids
    position: int | None = None

    def __call__(self, result: Tensor, layout: Layout) -> Tensor:
        return chosen(at(result, layout, self.position).log_softmax(-1), self.answer)


@dataclass(frozen=True)
class Loss:
    """The mean cross-entropy of a target, in nats, over the positions that have one."""

    __repr__ = brief
    target: Tensor
    """b t: the id that follows each position, negative for none."""

    def __call__(self, result: Tensor, layout: Layout) -> Tensor:
        target = repeated_to(self.target.to(result.device), len(result))
        if target.shape != result.shape[:2]:
            expected, got = list(result.shape[:2]), list(target.shape)
            raise UserError(f"target: expected an id for each position, b t = {expected}, got {got}")
        counted = target >= 0
        nats = -result.log_softmax(-1).gather(-1, target.clamp(min=0)[..., None])[..., 0]
        return (nats * counted).sum(1) / counted.sum(1).clamp(min=1)


@dataclass(frozen=True)
class Divergence:
    """KL(reference || result) at one position, in nats. Its gradient at the reference is 0, so set `steps`."""

    __repr__ = brief
    reference: Tensor
    """The logits of the network unpatched, as it returns them."""
    position: int | None = None

    def __call__(self, result: Tensor, layout: Layout) -> Tensor:
        there = at(repeated_to(self.reference, len(result)), layout, self.position).log_softmax(-1)
        return (there.exp() * (there - at(result, layout, self.position).log_softmax(-1))).sum(-1)


@dataclass(frozen=True)
class VectorShift:
    """<vector, direction>: the component of each row's vector along a direction, for encoders without labels."""

    __repr__ = brief
    direction: Tensor
    """b d: of length 1, such as from the corrupt text's vector to the clean one's."""
    vectors: Vectors

    def __call__(self, result: Tensor, layout: Layout) -> Tensor:
        vectors = self.vectors(result, layout)
        return (vectors * repeated_to(self.direction, len(vectors))).sum(-1)


@dataclass(frozen=True)
class Cosine:
    """<v, r> / (|v| |r|): how similar the vector v of each row is to a reference r, such as the whole network's."""

    __repr__ = brief

    reference: Tensor
    """b d"""
    vectors: Vectors

    def __call__(self, result: Tensor, layout: Layout) -> Tensor:
        vectors = self.vectors(result, layout).float()
        return torch.cosine_similarity(vectors, repeated_to(self.reference.float(), len(vectors)), dim=-1)


def mean_states(result: Tensor, layout: Layout) -> Tensor:
    """b t d -> b d: the mean of the real states; vectors are themselves."""
    return result if result.ndim == 2 else pool(result, layout.valid, "mean")


def at(result: Tensor, layout: Layout, position: int | None) -> Tensor:
    """b t v -> b v: at one position, by default the last real one; b v is itself, because its head pools."""
    if result.ndim == 2:
        return result
    if position is None:
        return pool(result, layout.valid, "last")
    if not -result.shape[1] <= position < result.shape[1]:
        raise UserError(f"position {position}: expected one of the last stack, whose length is {result.shape[1]}")
    return result[:, position]


def chosen(logits: Tensor, ids: Ids) -> Tensor:
    """b v -> b: the logit of each row's id."""
    which = torch.as_tensor(ids, device=logits.device)
    if int(which.min()) < 0 or int(which.max()) >= logits.shape[-1]:
        raise UserError(f"answer: expected ids below {logits.shape[-1]}, got {ids}")
    return logits.gather(-1, repeated_to(which.reshape(-1), len(logits))[:, None])[:, 0]


def repeated_to(rows: Tensor, n: int) -> Tensor:
    """The rows, repeated until there are n. Raises UserError if n is no multiple."""
    if n % len(rows):
        raise UserError(f"metric: expected one number or one for each row of the batch, got {len(rows)}")
    return rows.repeat(n // len(rows), *[1] * (rows.ndim - 1))
