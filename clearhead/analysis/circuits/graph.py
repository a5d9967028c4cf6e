"""The results of `Circuits`: scores of nodes and edges by address, and what is left above a threshold."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from pydantic import JsonValue
from torch import Tensor

from clearhead.brief import brief


@dataclass(frozen=True)
class Edge:
    """What a reader takes from a writer."""

    writer: str
    """Such as `decoder.blocks.0.attn.heads[h=2]`."""
    reader: str
    """Such as `decoder.blocks.1.attn.q[h=0]`, or `head.logits`."""
    score: float
    """About how much the metric loses if this reader sees the writer's corrupt value."""


@dataclass(frozen=True)
class Nodes:
    """A score for each writer: about how much the metric loses if it writes its corrupt value."""

    __repr__ = brief

    positions: Mapping[str, Tensor]
    """By address, t: the estimated share of each position of its stack."""
    exact: Mapping[str, float] = field(default_factory=dict[str, float])
    """The effects of the writers that were patched for real; those of the others are estimates."""

    @property
    def scores(self) -> dict[str, float]:
        """The exact effects, and for the other writers the sums over the positions."""
        return {address: float(shares.sum()) for address, shares in self.positions.items()} | dict(self.exact)

    def json(self) -> dict[str, JsonValue]:
        """The scores, whether each is exact, and the shares of positions, as JSON has them."""
        return {
            at: {"score": score, "exact": at in self.exact, "positions": self.positions[at].tolist()}
            for at, score in self.scores.items()
        }


@dataclass(frozen=True)
class Edges:
    """A score for each edge of the graph."""

    __repr__ = brief

    writers: tuple[str, ...]
    readers: tuple[str, ...]
    feeds: tuple[tuple[str, ...], ...]
    """By reader: the writers that write what they make of it; none for the network's head."""
    exists: Tensor
    """w r, bool: which writers come before which readers, in the same stream."""
    scores: Tensor
    """w r: 0 where there is no edge."""

    def top(self, n: int | None = None) -> list[Edge]:
        """The n edges with the largest scores, positive or negative, largest first; all for None."""
        return [self.edge(w, r) for w, r in self._order()[:n].tolist()]

    def edge(self, writer: int, reader: int) -> Edge:
        """The edge with these numbers."""
        return Edge(self.writers[writer], self.readers[reader], float(self.scores[writer, reader]))

    def kept(self, n: int) -> Tensor:
        """w r, bool: the n edges with the largest scores."""
        mask = torch.zeros_like(self.exists)
        w, r = self._order()[:n].T
        mask[w, r] = True
        return mask

    def above(self, threshold: float) -> list[Edge]:
        """The edges with |score| >= threshold that lie on a path of such edges from an input to the result."""
        mask = on_a_path(self, self.exists & (self.scores.abs() >= threshold))
        return [edge for edge in self.top() if mask[self.writers.index(edge.writer), self.readers.index(edge.reader)]]

    def json(self, edges: Iterable[Edge] | None = None) -> list[JsonValue]:
        """These edges, by default all, as JSON has them."""
        return [vars(edge) for edge in (self.top() if edges is None else edges)]

    def _order(self) -> Tensor:
        """n 2: the numbers of each edge's writer and reader, the largest score first."""
        places = self.exists.nonzero()
        return places[self.scores[self.exists].abs().argsort(descending=True, stable=True)]


def on_a_path(edges: Edges, mask: Tensor) -> Tensor:
    """w r, bool: the edges of `mask` on a path, all in `mask`, from an embedding to the network's result.

    Other edges change nothing: what they carry is corrupt, or nobody reads it.
    """
    number = {writer: i for i, writer in enumerate(edges.writers)}
    feeds = torch.zeros(len(edges.readers), len(edges.writers), dtype=torch.bool)
    for r, fed in enumerate(edges.feeds):
        feeds[r, [number[writer] for writer in fed]] = True
    is_result, is_input = ~feeds.any(1), ~feeds.any(0)
    mask = mask.cpu()
    while True:
        reaches, reached = _any(feeds, mask.any(1)), _any(feeds.T, mask.any(0))
        left = mask & (reaches | is_result) & (reached | is_input)[:, None]
        if bool((left == mask).all()):
            return left
        mask = left


def _any(matrix: Tensor, vector: Tensor) -> Tensor:
    """Rows of a matrix of bools that have a true cell where the vector is true."""
    return (matrix & vector).any(1)
