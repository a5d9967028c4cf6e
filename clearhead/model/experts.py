"""A mixture of experts: several feed-forward parts, and a router that chooses a few of them for each position."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead import config as c
from clearhead.brief import brief
from clearhead.config import Experts
from clearhead.model.fast.dropout import dropout
from clearhead.model.feedforward import FeedForward
from clearhead.model.layout import Layout
from clearhead.model.mode import Part
from clearhead.model.ops import KINDS, Call, Kind, Sized, Sizes, Steps, only_sized, parameters
from clearhead.trace import tap, tracing


@dataclass
class Load:
    """Counts how one pass of a network in training spreads its positions over the experts."""

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
    """While open, routers with a load-balancing loss count their choices."""
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


NEVER_NARROWED = ".router.correction"
"""The end of the names of weights that stay in the type in which they are stored, because small differences decide."""

# --- the choice ------------------------------------------------------------------------------------------------------


class Router(Part):
    """scores = softmax(x W^T), or sigmoid; an expert's share is its score if it is among the k best, else 0

    Shazeer et al. 2017, 2.1; groups and sigmoid: DeepSeek-AI 2024, 2.1.2. Scores are at least float32.
    """

    def __init__(self, config: c.Experts, d_model: int) -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.empty(config.n, d_model))
        self.bias = nn.Parameter(torch.zeros(config.n)) if config.router_bias else None
        self.correction = nn.Parameter(torch.zeros(config.n), requires_grad=False) if config.correction else None

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """... d -> ... k and ... k: the shares of the chosen experts and their numbers."""
        scores = self.scores(F.linear(x, self.weight, self.bias))
        chosen = _best(self.ranked(scores), self.config.n_chosen, stable=tracing())
        count(self.config, scores, chosen)
        return self.scaled(scores.gather(-1, chosen)).to(x.dtype), chosen

    def all(self, x: Tensor) -> Tensor:
        """... d -> ... e: the share of each expert, step by step."""
        logits = tap(self, "logits", F.linear(x, self.weight, self.bias), "b t e")
        scores = tap(self, "probabilities", self.scores(logits), "b t e")
        chosen = _best(self.ranked(scores), self.config.n_chosen, stable=tracing())
        count(self.config, scores, chosen)
        marks = tap(self, "chosen", torch.zeros_like(scores).scatter(-1, chosen, 1.0), "b t e")
        return tap(self, "shares", self.scaled(scores * marks).to(x.dtype), "b t e")

    def scores(self, logits: Tensor) -> Tensor:
        """... e -> ... e, in at least float32."""
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return logits.softmax(-1) if self.config.scores == "softmax" else logits.sigmoid()

    @torch.no_grad()
    def ranked(self, scores: Tensor) -> Tensor:
        """... e -> ... e: what is compared for the choice, -inf outside the best groups."""
        config, scores = self.config, scores if self.correction is None else scores + self.correction
        return _in_groups(scores, config.n_groups, config.n_groups_chosen, config.group_best, stable=tracing())

    def scaled(self, scores: Tensor) -> Tensor:
        """The scores, divided by their sum and multiplied by the factor where the config says so."""
        scores = _normalised(scores, traced=tracing()) if self.config.normalised else scores
        return scores if self.config.scale is None else scores * self.config.scale

    def steps(self, to: Steps, path: str, x: str) -> str:
        """Lists the ops of `all`; returns the address of the shares."""
        config = self.config
        with to.inside(path):
            logits = to.linear(f"{path}.logits", x, self, path)
            if config.scores == "softmax":
                scores = to.do(f"{path}.probabilities", "softmax", logits)
            else:
                scores = to.do(f"{path}.probabilities", "activation", logits, how="sigmoid")
            by: dict[str, float] = {"k": config.n_chosen}
            if config.n_groups is not None and config.n_groups_chosen is not None:
                by |= {"groups": config.n_groups, "kept": config.n_groups_chosen, "best": config.group_best}
            weights = () if self.correction is None else (f"{path}.correction",)
            marks = to.do(f"{path}.chosen", "top_k", scores, weights=weights, by=by)
            shares = to.do(f"{path}.kept", "multiply", scores, marks)
            if config.normalised:
                shares = to.do(f"{path}.normalised", "normalise", shares)
            if config.scale is not None:
                to.do(f"{path}.scaled", "scale", shares, by={"factor": config.scale})
            return to.named(f"{path}.shares")


def _best(ranked: Tensor, k: int, *, stable: bool) -> Tensor:
    """... e -> ... k: the numbers of the largest. With `stable`, the first of equal ones, which edits can make."""
    if stable:
        return ranked.sort(dim=-1, descending=True, stable=True).indices[..., :k]
    return ranked.topk(k, -1).indices


def _in_groups(scores: Tensor, n: int | None, kept: int | None, best: int, *, stable: bool) -> Tensor:
    """... e -> ... e: -inf outside the `kept` groups with the largest sums of their `best` scores."""
    if n is None or kept is None or kept == n:
        return scores
    groups = scores.unflatten(-1, (n, -1))
    sums = groups.topk(best, -1).values.sum(-1)
    closed = torch.ones_like(sums, dtype=torch.bool).scatter(-1, _best(sums, kept, stable=stable), False)
    return groups.masked_fill(closed[..., None], float("-inf")).flatten(-2)


def _normalised(shares: Tensor, *, traced: bool) -> Tensor:
    """The shares, divided by their sum. An edit of a trace can make the sum 0; the shares then stay 0."""
    total = shares.sum(-1, keepdim=True)
    return shares / (total.masked_fill(total == 0, 1.0) if traced else total)


# --- the experts -----------------------------------------------------------------------------------------------------


class Mixture(Part):
    """y = sum_e share_e(x) FFN_e(x) + (sigmoid(x w)) FFN_shared(x), the last where the config has a shared expert

    Each expert computes only the positions that chose it. While traced or compiled, every expert computes them all, so
    that each has its values at each position: those of an expert that was not chosen have the share 0.
    """

    def __init__(self, config: c.StackConfig, experts: c.Experts) -> None:
        super().__init__()
        self.router = Router(experts, config.d_model)
        self.experts = nn.ModuleList(FeedForward(config, experts.d_ff) for _ in range(experts.n))
        self.shared = FeedForward(config, experts.shared) if experts.shared else None
        self.shared_gate = nn.Linear(config.d_model, 1, bias=False) if experts.shared_gate else None

    @property
    def parts(self) -> list[FeedForward]:
        """The experts."""
        return [expert for expert in self.experts if isinstance(expert, FeedForward)]

    def forward(self, x: Tensor) -> Tensor:
        """b t d (or packed m d) -> the same shape."""
        if tracing() or torch.compiler.is_compiling():
            out = self.explicit(x)
        else:
            out = self.routed(x.flatten(0, -2)).view(x.shape)
        if self.shared is not None:
            shared = self.shared(x)
            out = out + (shared if self.shared_gate is None else shared * self.shared_gate(x).sigmoid())
        return tap(self, "out", out, "b t d")

    def explicit(self, x: Tensor) -> Tensor:
        """b t d (or m d) -> the same shape: each expert's result at all positions, times its share."""
        shares, parts = self.router.all(x), self.parts
        pre = tap(self, "pre", torch.stack([part.first(x) for part in parts], -3), "b e t f")
        up = None if parts[0].gate is None else torch.stack([part.up(x) for part in parts], -3)
        post = tap(self, "post", parts[0].activated(pre, up), "b e t f")
        post = dropout(post, parts[0].dropout, self.training)
        outputs = torch.stack([part.down(one) for part, one in zip(parts, post.unbind(-3), strict=True)], -3)
        each = tap(self, "experts", outputs * shares.mT[..., None].to(outputs.dtype), "b e t d")
        return each.sum(-3)

    def routed(self, x: Tensor) -> Tensor:
        """n d -> n d: the rows of each expert one after the other."""
        shares, chosen = self.router(x)
        n, k = chosen.shape
        parts = self.parts
        if n == 1 and not torch.is_grad_enabled():  # The next token of one text.
            outs = [parts[i](x) for i in chosen[0].tolist()]
            return shares.to(outs[0].dtype) @ torch.cat(outs)
        order = chosen.flatten().argsort(stable=True)
        sizes = chosen.flatten().bincount(minlength=len(parts)).tolist()
        # In training, an expert without rows has a gradient too: zeros.
        used = [i for i, size in enumerate(sizes) if size or torch.is_grad_enabled()]

        def mapped(name: str, rows: Tensor) -> Tensor:
            """m d -> m f: the first rows by the map of the first expert, and so on."""
            own = rows.split([sizes[i] for i in used])
            return torch.cat([parts[i].get_submodule(name)(one) for i, one in zip(used, own, strict=True)])

        first, rows = parts[0], x.index_select(0, order // k)
        pre = mapped(first.first_name, rows)
        up = None if first.gate is None else mapped("up", rows)
        out = mapped("down", dropout(first.activated(pre, up), first.dropout, self.training))
        places = torch.empty_like(order).scatter_(0, order, torch.arange(n * k, device=order.device))
        out = out.index_select(0, places).view(n, k, -1)
        return (shares.to(out.dtype)[:, None] @ out)[:, 0]

    def steps(self, to: Steps, path: str, x: str) -> str:
        """Lists the ops of `explicit`, or for training the sizes of `routed`; returns the address of the result."""
        with to.inside(path):
            out = self.row_steps(to, path, x) if to.training else self.expert_steps(to, path, x)
            if self.shared is not None:
                shared = self.shared.steps(to, f"{path}.shared", x)
                if self.shared_gate is not None:
                    gate = to.linear(f"{path}.shared_gate.logit", x, self.shared_gate, f"{path}.shared_gate")
                    gate = to.do(f"{path}.shared_gate.share", "activation", gate, how="sigmoid")
                    shared = to.do(f"{path}.shared_gate.out", "weigh", shared, gate)
                to.do(f"{path}.out", "add", out, shared)
            return to.named(f"{path}.out")

    def expert_steps(self, to: Steps, path: str, x: str) -> str:
        """Lists the ops of `explicit`; returns the address of the result."""
        shares, first = self.router.steps(to, f"{path}.router", x), self.parts[0]
        pre = self._each(to, f"{path}.pre", path, x, first.first_name)
        first.activated_steps(to, path, pre, lambda: self._each(to, f"{path}.up", path, x, "up"))
        outputs = self._each(to, f"{path}.outputs", path, to.named(f"{path}.post"), "down")
        each = to.do(f"{path}.experts", "weigh", outputs, shares)
        return to.do(f"{path}.sum", "sum_heads", each)

    def _each(self, to: Steps, out: str, path: str, x: str, name: str) -> str:
        """Lists one map of every expert; returns `out`."""
        names = [
            parameters(part.get_submodule(name), f"{path}.experts.{i}.{name}") for i, part in enumerate(self.parts)
        ]
        weights = tuple(own[side] for side in range(len(names[0])) for own in names)
        return to.do(out, "each_linear", x, weights=weights, by={"n": len(names), "each": float(name == "down")})

    def row_steps(self, to: Steps, path: str, x: str) -> str:
        """Lists the sizes of `routed`; returns the address of the result."""
        config = self.router.config
        logits = to.linear(f"{path}.router.logits", x, self.router, f"{path}.router")
        by = {
            "k": config.n_chosen,
            "normalised": float(config.normalised),
            "softmax": float(config.scores == "softmax"),
        }
        shares = to.do(f"{path}.router.shares", "route", logits, x, by=by)
        rows = to.do(f"{path}.rows", "to_experts", x, shares)
        out = self.parts[0].steps(to, f"{path}.experts.0", rows)
        out = to.do(f"{path}.weighed", "weigh", out, shares)
        return to.do(f"{path}.sum", "from_experts", out, x)


# --- kinds of op -----------------------------------------------------------------------------------------------------


def _each_linear(call: Call) -> Tensor:
    n, x = int(call.op.by["n"]), call.x[0]
    rows = [x] * n if x.ndim == 2 else [*x]
    biases = call.w[n:] or [None] * n
    return torch.stack([F.linear(*one) for one in zip(rows, call.w[:n], biases, strict=True)])


def _each_shape(call: Sized) -> tuple[int, ...]:
    return int(call.op.by["n"]), call.x[0].shape[-2], call.w[0][0]


def _top_k(call: Call) -> Tensor:
    scores, by = call.x[0], {name: int(value) for name, value in call.op.by.items()}
    ranked = scores + call.w[0] if call.w else scores
    ranked = _in_groups(ranked, by.get("groups"), by.get("kept"), by.get("best", 1), stable=True)
    return torch.zeros_like(scores).scatter(-1, _best(ranked, by["k"], stable=True), 1.0)


def _weigh(call: Call) -> Tensor:
    x, shares = call.x
    return x * (shares.mT[..., None] if x.ndim == 3 else shares)


def _saved_by_weighing(call: Sized) -> tuple[Sizes, ...]:
    """Both inputs. If the factors have no gradient, which their width of 0 says, the factors alone, in float32."""
    return tuple(call.x) if call.x[1].width else (Sizes(call.x[1].shape),)


def _routed_shape(call: Sized) -> tuple[int, ...]:
    return call.x[0].shape[0] * int(call.op.by["k"]), 1


def _saved_by_the_choice(call: Sized) -> tuple[Sizes, ...]:
    """The scores, and if shares are normalised the chosen scores and their sums, all in float32."""
    t, n = call.x[0].shape
    scores, k = Sizes((t, n)), int(call.op.by["k"])
    return (scores, Sizes((t, k)), Sizes((t, 1))) if call.op.by["normalised"] else (scores,)


KINDS |= {
    "top_k": Kind(_top_k),
    "normalise": Kind(lambda call: _normalised(call.x[0], traced=True)),
    "each_linear": Kind(_each_linear, _each_shape),
    "weigh": Kind(_weigh, saves=_saved_by_weighing),
    "route": Kind(only_sized, _routed_shape, _saved_by_the_choice, width=lambda call: call.x[1].width),
    "to_experts": Kind(only_sized, lambda call: (call.x[1].shape[0], call.x[0].shape[1]), width=lambda c: c.x[0].width),
    "from_experts": Kind(only_sized, lambda call: call.x[1].shape, width=lambda call: call.x[0].width),
}
