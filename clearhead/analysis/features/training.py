"""Trains features on the passes of a network: `for event in train(...)`."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.analysis.features.dictionary import Features, Site
from clearhead.analysis.passes import rows_at
from clearhead.brief import brief
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer

AUX = 1 / 32
"""Weight of the loss by which dead features learn (Gao et al. 2024, A.2)."""


@dataclass(frozen=True)
class Scaling:
    """x -> (x - mean) / size, after which a component has mean square 1."""

    __repr__ = brief

    mean: Tensor
    """d"""
    size: float

    @classmethod
    def of(cls, values: Tensor) -> "Scaling":
        """n d: the scaling of these values."""
        mean = values.mean(0)
        return cls(mean, max(float((values - mean).square().mean().sqrt()), 1e-12))

    def __call__(self, values: Tensor) -> Tensor:
        return (values - self.mean) / self.size


@dataclass(frozen=True)
class Update:
    """What one update found."""

    explained: float
    """1 - |y - y'|^2 / |y - mean|^2 over the batch."""
    n_dead: int


class Learner:
    """y' = TopK(x W_enc + b_enc) W_dec + b_dec + x W_skip, with rows of W_dec of length 1   (Gao et al. 2024, 2)

    The gradients are written out, because k of thousands of features have one. Both matrices of features are f d.
    """

    def __init__(
        self, x: Tensor, y: Tensor, *, n: int, k: int, seed: int, dead_after: int, tied: bool, skip: bool = False
    ) -> None:
        """Begins at pairs of examples: feature i reads the direction of x_i and writes that of y_i.

        A feature is dead if it was not active for `dead_after` positions. `tied`: y is x. `skip`: W_skip begins at the
        linear regression of these examples; without, there is none.
        """
        self.k, self.dead_after = k, dead_after
        self.of_x, self.of_y = Scaling.of(x), Scaling.of(y)
        draw = torch.Generator().manual_seed(seed)
        some = torch.randint(len(x), (n,), generator=draw)
        noise = torch.randn(n, y.shape[1], generator=draw) * 0.1
        self.w_dec = F.normalize(self.of_y(y[some]) + noise, dim=1)
        noise = noise if tied else torch.randn(n, x.shape[1], generator=draw) * 0.1
        self.w_enc = F.normalize(self.of_x(x[some]) + noise, dim=1)
        self.b_enc, self.b_dec = torch.zeros(n), torch.zeros(y.shape[1])
        self.w_skip = _regression(self.of_x(x), self.of_y(y)) if skip else None
        self._begin(self.of_x(x[: len(some)]), self.of_y(y[: len(some)]))
        self.idle = torch.zeros(n, dtype=torch.long)
        """Positions since each feature was active."""
        self.parameters = [self.w_enc, self.w_dec, self.b_enc, self.b_dec]
        self.parameters += [] if self.w_skip is None else [self.w_skip]
        self.optimizer = torch.optim.Adam(self.parameters, lr=1.0, eps=1e-8, fused=x.device.type != "mps")

    def _begin(self, x: Tensor, y: Tensor) -> None:
        """Scales W_enc so that what the features make of these examples is as close to them as a factor can make it."""
        active, at = (x @ self.w_enc.T).topk(self.k, sorted=False)
        made, y = self.sum_of(at, active.relu()), y if self.w_skip is None else y - x @ self.w_skip
        self.w_enc *= max(float((made * y).sum() / made.square().sum().clamp(min=1e-12)), 1e-3)

    def update(self, x: Tensor, y: Tensor, *, lr: float) -> Update:
        """One step of Adam on a batch, n d each."""
        x, y = self.of_x(x), self.of_y(y)
        before = torch.addmm(self.b_enc, x, self.w_enc.T)
        active, at = before.topk(self.k, sorted=False)
        active = active.relu()
        error = self.sum_of(at, active) + self.b_dec - y
        if self.w_skip is not None:
            error.addmm_(x, self.w_skip)
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)
        slope = error * (2 / error.numel())
        self.add_gradients(x, slope, at, active)
        assert self.b_dec.grad is not None
        self.b_dec.grad += slope.sum(0)
        if self.w_skip is not None:
            self.w_skip.grad = x.T @ slope
        self.idle += len(x)
        self.idle[at[active > 0]] = 0
        dead = (self.idle > self.dead_after).nonzero()[:, 0]
        if len(dead):
            self.revive(x, error, before, dead)
        self.step(lr)
        return Update(1 - float(error.square().sum() / y.square().sum()), len(dead))

    def revive(self, x: Tensor, error: Tensor, before: Tensor, dead: Tensor) -> None:
        """Adds the gradients of AUX |e' - e|^2 / |e|^2, e' what the largest dead features make of the error e."""
        active, which = before[:, dead].topk(min(x.shape[1] // 2, len(dead)), sorted=False)
        active, at = active.relu(), dead[which]
        rest = self.sum_of(at, active) + error
        self.add_gradients(x, rest * (2 * AUX / float(error.square().sum())), at, active)

    def sum_of(self, at: Tensor, active: Tensor) -> Tensor:
        """n k -> n d: sum_j active_j W_dec[at_j]"""
        return F.embedding_bag(at, self.w_dec, per_sample_weights=active, mode="sum")

    def add_gradients(self, x: Tensor, slope: Tensor, at: Tensor, active: Tensor) -> None:
        """Adds the gradients by way of the active features, where `slope`, n d, is that of their sum."""
        by_active = _dots(slope, at, self.w_dec) * (active > 0)
        order = at.flatten().argsort()
        rows, counts = order // at.shape[1], torch.bincount(at.flatten(), minlength=len(self.w_enc))
        begins = F.pad(counts.cumsum(0)[:-1], (1, 0))
        for matrix, values, weights in ((self.w_dec, slope, active), (self.w_enc, x, by_active)):
            assert matrix.grad is not None
            by_feature = weights.flatten()[order]
            matrix.grad += F.embedding_bag(rows, values, begins, per_sample_weights=by_feature, mode="sum")
        assert self.b_enc.grad is not None
        self.b_enc.grad.index_add_(0, at.flatten(), by_active.flatten())

    def step(self, lr: float) -> None:
        """Adam, with the rows of W_dec kept at length 1."""
        assert self.w_dec.grad is not None
        self.w_dec.grad -= (self.w_dec.grad * self.w_dec).sum(1, keepdim=True) * self.w_dec
        self.optimizer.param_groups[0]["lr"] = lr
        self.optimizer.step()
        self.w_dec /= self.w_dec.norm(dim=1, keepdim=True).clamp(min=1e-12)

    def features(self, site: Site) -> Features:
        """The features, in the units of the network's values: the scaling becomes a part of the weights."""
        ratio = self.of_y.size / self.of_x.size
        w_enc = self.w_enc.T * ratio
        b_enc = self.b_enc * self.of_y.size - self.of_x.mean @ w_enc
        b_dec = self.b_dec * self.of_y.size + self.of_y.mean
        w_skip = None if self.w_skip is None else self.w_skip * ratio
        b_dec = b_dec if w_skip is None else b_dec - self.of_x.mean @ w_skip
        return Features(site, w_enc.contiguous(), b_enc, self.w_dec.clone(), b_dec, k=self.k, w_skip=w_skip)


def _regression(x: Tensor, y: Tensor) -> Tensor:
    """d d: W with the least |x W - y|^2 + |W|^2 n / 1000."""
    gram = x.T @ x
    # `solve` returns columns side by side, and a fused optimizer would pair them with the rows of the gradient.
    return torch.linalg.solve(gram + 1e-3 * len(x) * torch.eye(len(gram)), x.T @ y).contiguous()


def _dots(slope: Tensor, at: Tensor, w_dec: Tensor) -> Tensor:
    """n k: slope_i . W_dec[at_ij]"""
    with torch.enable_grad():
        weights = torch.zeros(at.shape).requires_grad_()
        total = F.embedding_bag(at, w_dec.detach(), per_sample_weights=weights, mode="sum")
        return torch.autograd.grad(total, weights, slope)[0]


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
        """Yields the inputs and the targets of the features, n d each, without end."""
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
