"""The load-balancing loss of mixtures of experts, least where all experts are chosen equally often."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from torch import Tensor

from clearhead.brief import brief
from clearhead.config import Experts
from clearhead.model.layout import Layout


@dataclass
class Load:
    """How one pass of a network in training spreads its positions over the experts."""

    __repr__ = brief

    layout: Layout | None = None
    """The layout of the stack that runs."""
    rows: dict[Experts, int] = field(default_factory=dict[Experts, int])
    counts: dict[Experts, Tensor] = field(default_factory=dict[Experts, Tensor])
    scores: dict[Experts, Tensor] = field(default_factory=dict[Experts, Tensor])

    def add(self, config: Experts, scores: Tensor, chosen: Tensor) -> None:
        """Adds one layer: ... e and ... k. Padding does not count."""
        scores, chosen = scores.flatten(0, -2), chosen.flatten(0, -2)
        if self.layout is not None and self.layout.rows is not None:
            n = len(self.layout.rows)
            scores, chosen = scores[:n], chosen[:n]
        elif self.layout is not None and self.layout.valid is not None:
            real = self.layout.valid.flatten()
            scores, chosen = scores[real], chosen[real]
        counts = chosen.flatten().bincount(minlength=config.n).to(scores.dtype)
        self.rows[config] = self.rows.get(config, 0) + len(scores)
        self.counts[config] = self.counts.get(config, 0) + counts
        self.scores[config] = self.scores.get(config, 0) + scores.sum(0)

    def loss(self) -> Tensor | float:
        """balance n sum_e f_e p_e: f the share of positions that chose expert e, p its mean score, over all layers

        Fedus et al. 2021, equations 4 to 6, for several chosen experts.
        """
        return sum(
            config.balance * config.n * (self.counts[config] @ self.scores[config]) / rows**2
            for config, rows in self.rows.items()
        )


_load: ContextVar[Load | None] = ContextVar("load of the experts", default=None)


@contextmanager
def counted_load() -> Iterator[Load]:
    """While open, routers with a load-balancing loss count what they choose."""
    load = Load()
    before = _load.get()
    _load.set(load)
    try:
        yield load
    finally:
        _load.set(before)


def tell_layout(layout: Layout) -> None:
    """Tells a running count which cells of the stack that runs now hold tokens."""
    if (load := _load.get()) is not None:
        load.layout = layout


def count(config: Experts, scores: Tensor, chosen: Tensor) -> None:
    """Adds a layer's scores, ... e, and chosen experts, ... k, to a running count, if its config has such a loss."""
    if config.balance and (load := _load.get()) is not None:
        load.add(config, scores, chosen)
