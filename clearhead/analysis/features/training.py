"""Trains features on the passes of a network: `for event in train(...)`."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from clearhead.analysis.features.buffer import Buffer, Inputs
from clearhead.analysis.features.dictionary import Features, Site
from clearhead.analysis.features.learner import Learner
from clearhead.errors import UserError
from clearhead.model import Transformer

WARMUP, COOLDOWN = 0.02, 0.3
"""Shares of the run in which the learning rate grows, and shrinks to 0."""


@dataclass(frozen=True)
class Settings:
    """How features are trained. One of `steps` and `minutes` limits the run."""

    n: int
    """The number of features."""
    k: int = 32
    """How many of them are active at a position."""
    steps: int | None = None
    minutes: float | None = None
    batch: int = 512
    """Positions of an update."""
    lr: float = 1e-3
    skip: bool = False
    """Whether a linear way from what they read to what they write stands beside them; only for a transcoder."""
    seed: int = 0
    buffer_bytes: int = 512 << 20
    """The size of the buffer of shuffled values."""
    dead_after: int = 200_000
    """Positions without activity after which a feature counts as dead."""

    def done(self, step: int, seconds: float) -> float:
        """The share of the run that is over."""
        by_steps = 0.0 if self.steps is None else step / self.steps
        return min(1.0, max(by_steps, 0.0 if self.minutes is None else seconds / (60 * self.minutes)))

    def rate(self, done: float) -> float:
        """The learning rate: linear to `lr`, constant, linear to 0."""
        return self.lr * min(1.0, (done + 1e-3) / WARMUP, (1 - done) / COOLDOWN)


@dataclass(frozen=True)
class Stepped:
    """One update."""

    step: int
    explained: float
    """Share of the variance that the features explain in this batch."""
    n_dead: int
    n_positions: int
    """Positions that the features have learnt from so far."""
    seconds: float
    progress: float
    """Share of the run done, 0..1."""


@dataclass(frozen=True)
class Ended:
    """The run is over."""

    features: Features
    steps: int
    seconds: float


Event = Stepped | Ended


def train(
    network: Transformer,
    inputs: Inputs,
    site: Site,
    settings: Settings,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Event]:
    """Yields a `Stepped` for each update, then `Ended` with the features.

    `clock` counts the minutes; `time.process_time` counts those of one thread on a machine that does other work too.
    The values are those of forward passes over `inputs`, made as they are needed (see `Buffer`). Raises UserError
    unless one of `steps` and `minutes` is set, for more active features than there are, and for `skip` with an
    autoencoder.
    """
    if settings.steps is None and settings.minutes is None:
        raise UserError("features: expected steps or minutes, got neither; set one of them")
    if not 0 < settings.k <= settings.n:
        raise UserError(f"k: expected 1 to {settings.n}, the number of features, got {settings.k}")
    if settings.skip and site.kind == "sae":
        raise UserError("skip: expected a transcoder, got an autoencoder, which a linear way would copy")
    start, size = clock(), settings.batch
    with torch.no_grad():
        buffer = Buffer(network, inputs, site, n_bytes=settings.buffer_bytes, seed=settings.seed)
        tied = site.kind == "sae"
        about = {"n": settings.n, "k": settings.k, "seed": settings.seed, "dead_after": settings.dead_after}
        learner = Learner(buffer.x, buffer.y, **about, tied=tied, skip=settings.skip)
    step, seconds, batches = 0, 0.0, buffer.batches(size)
    while (done := settings.done(step, seconds)) < 1.0:
        with torch.no_grad():
            x, y = next(batches)
            found = learner.update(x, y, lr=settings.rate(done))
        step, seconds = step + 1, clock() - start
        yield Stepped(step, found.explained, found.n_dead, step * size, seconds, settings.done(step, seconds))
    yield Ended(learner.features(site), step, clock() - start)
