"""What features read and predict at many positions of many texts, in random order."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from clearhead.analysis.features.dictionary import Site
from clearhead.analysis.values import rows_at
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer

Inputs = Sequence[Sequence[Tokens]]
"""Batches, each with an input for every stack."""


BEGIN = 1 << 16
"""Positions in the buffer at the beginning."""


class Buffer:
    """Keeps the values at a site of as many positions as fit, and hands them out in random order.

    It begins with some, and each time that all have been handed out, new passes double it. If all positions of the
    texts fit, the network reads them once; if not, new ones replace half of a full buffer each time.
    """

    def __init__(self, network: Transformer, inputs: Inputs, site: Site, *, n_bytes: int, seed: int) -> None:
        """`n_bytes` is the size of the buffer. Raises UserError if there are no texts."""
        if not inputs:
            raise UserError("features: expected texts, got none")
        self.network, self.site = network, site
        self.draw = torch.Generator().manual_seed(seed)
        self.passes, self.is_partial = self._passes(inputs), False
        first = next(self.passes)
        assert first is not None
        widths = [part.shape[1] for part in (first if site.kind == "transcoder" else first[:1])]
        self.most = max(len(first[0]), n_bytes // (4 * sum(widths)))
        self.x, self.y = first
        self.is_whole = self._fill(min(BEGIN, self.most))

    def batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """n d each, without end: what the features read, and what they predict."""
        while True:
            order = torch.randperm(len(self.x), generator=self.draw)
            for at in order.split(size):
                if len(at) == min(size, len(order)):
                    yield self.x[at], self.y[at]
            if not self.is_whole:
                self._renew(order)

    def _renew(self, order: Tensor) -> None:
        """Adds as many positions as there are; if the buffer is full, half of it makes room for them."""
        if 2 * len(order) > self.most:
            kept = order[: self.most // 2]
            self.is_partial = True
            self.x, self.y = self.x[kept], self.y[kept] if self.site.kind == "transcoder" else self.x[kept]
        ended = self._fill(min(2 * len(self.x), self.most))
        self.is_whole = ended and not self.is_partial

    def _fill(self, most: int) -> bool:
        """Adds passes until there are `most` positions, or all texts have been read; returns whether they have."""
        parts, n, ended = [(self.x, self.y)], len(self.x), False
        while n < most and not ended:
            rows = next(self.passes)
            if rows is None:
                ended = True
                continue
            parts.append(rows)
            n += len(rows[0])
        self.x = torch.cat([x for x, _ in parts])
        self.y = torch.cat([y for _, y in parts]) if self.site.kind == "transcoder" else self.x
        return ended

    def _passes(self, inputs: Inputs) -> Iterator[tuple[Tensor, Tensor] | None]:
        """The values of one batch after another, and None each time that all have been read."""
        while True:
            for i in torch.randperm(len(inputs), generator=self.draw).tolist():
                found = rows_at(self.network, inputs[i], {self.site.reads, self.site.writes})
                yield found[self.site.reads].float().cpu(), found[self.site.writes].float().cpu()
            yield None
