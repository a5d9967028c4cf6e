"""One update of sparse features: TopK, its gradients at the active features alone, and help for the dead ones."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.analysis.features.dictionary import Features, Site
from clearhead.brief import brief

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
