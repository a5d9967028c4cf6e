"""Which keys each query may attend to, and how position enters the scores."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from clearhead.brief import brief
from clearhead.model.encoding import PositionEncoding, Relation, Rotation
from clearhead.model.layout import Layout
from clearhead.model.ops import Steps


@dataclass(frozen=True)
class AttentionBias:
    """Which keys each query may attend to, and how position enters the scores."""

    __repr__ = brief

    mask: Tensor | None = None
    """b|1 1 t s: 0 for allowed keys and -inf for others; None if all are allowed."""
    unreachable: Tensor | None = None
    """b|1 1 t 1, bool: queries without an allowed key, whose result is 0; None if there can be none."""
    causal: bool = False
    """Whether the mask is exactly `s <= t`, which the fused kernel can apply without a mask."""
    is_lower: bool = False
    """Whether the mask closes all keys after a query, and there are as many keys as queries."""
    score_bias: Tensor | None = None
    rotation: Rotation | None = None
    """The rotation of the queries, and of the keys of the same positions."""
    relation: Relation | None = None
    """Distances of queries and keys, for an attention that has weights for them."""
    valid: Tensor | None = None
    """b s, bool: keys that are no padding; None for all."""

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
        """The bias from queries to keys under causality, a local window, padding and document borders.

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
        if keys.valid is not None and not padding_is_future:
            allowed = _both(allowed, keys.valid[:, None, :])
            # A real query reaches at least itself under causality.
            may_be_empty = keys.rows is None and not (causal and queries.valid is None)
        if window is not None:
            distance = (queries.positions[:, :, None] - keys.positions[:, None, :]).abs()
            allowed = _both(allowed, distance < window)
            may_be_empty = may_be_empty or not causal
        if queries.documents is not None and keys.documents is not None:
            allowed = _both(allowed, queries.documents[:, :, None] == keys.documents[:, None, :])
            may_be_empty = True
        masked = (keys.valid is not None and not padding_is_future) or queries.documents is not None
        plain_causal = causal and t == s and window is None and not masked
        rotation = positions.rotation(queries.positions) if positions else None
        bias = positions.score_bias(queries.positions, keys.positions) if positions else None
        relation = positions.relation(queries.positions, keys.positions) if positions else None
        if allowed is None or (fused and plain_causal and bias is None and relation is None):
            return cls(None, None, plain_causal, causal and t == s, bias, rotation, relation, keys.valid)
        allowed = allowed[:, None]
        unreachable = ~allowed.any(-1, keepdim=True) if may_be_empty else None
        closed = ~allowed if unreachable is None else ~(allowed | unreachable)
        mask = torch.zeros(closed.shape, device=device, dtype=dtype).masked_fill_(closed, float("-inf"))
        return cls(mask, unreachable, plain_causal, causal and t == s, bias, rotation, relation, keys.valid)

    def repeated(self, n: int) -> Self:
        """The same reach with each row of queries repeated n times."""
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
        """List the rotation of queries or keys; returns `out`, or None if there is none."""
        return self.positions.rotation_steps(to, out, x, self.numbers) if self.positions else None

    def biased(self, to: Steps, at: str, scores: str) -> str:
        """List the addition of a position bias to the scores; returns the sum's address, or `scores` without bias."""
        bias = self.positions.score_bias_steps(to, f"{at}.bias", self.path, self.numbers) if self.positions else None
        return scores if bias is None else to.do(at, "add", scores, bias)


def _both(a: Tensor | None, b: Tensor) -> Tensor:
    return b if a is None else a & b
