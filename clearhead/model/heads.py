"""Output heads: words, a class, a tag for each word, or a span."""

from abc import ABC, abstractmethod
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead import config as c
from clearhead.model.attention import Attention
from clearhead.model.attention_bias import AttentionBias, BiasSteps
from clearhead.model.fast.dropout import dropout
from clearhead.model.feedforward import ACTIVATIONS, FeedForward, activation_function, activation_steps
from clearhead.model.layout import Layout
from clearhead.model.linear import LinearMap, effective_weight, has_weight
from clearhead.model.loss import CHUNK, FEW, IGNORED, MANY, NEVER, check_labels, cross_entropy, linear_cross_entropy
from clearhead.model.mode import Part
from clearhead.model.norm import build_norm
from clearhead.model.ops import KINDS, Call, Kind, Mask, Sized, Steps
from clearhead.trace import tap, tracing

Pool = Literal["first", "second", "last", "mean", "first_and_mean"]


def pool(x: Tensor, valid: Tensor | None, how: Pool, *, skips: int = 0) -> Tensor:
    """b t d -> b d: the first real state, the last, the second cell, or the mean of all cells from `skips` on.

    "first_and_mean" joins two, b 2d. `valid` is b t, None for all.
    """
    if how == "first_and_mean":
        return torch.cat([pool(x, valid, "first"), pool(x, valid, "mean", skips=skips)], -1)
    x, valid = (x, valid) if how != "mean" else (x[:, skips:], None if valid is None else valid[:, skips:])
    b, t = x.shape[:2]
    valid = torch.ones(b, t, dtype=torch.bool, device=x.device) if valid is None else valid
    if how == "mean":
        return x.masked_fill(~valid[..., None], 0.0).sum(1) / valid.sum(1, keepdim=True).clamp(min=1)
    return x[torch.arange(b, device=x.device), 1 if how == "second" else end(valid, how)]


def end(valid: Tensor, how: Literal["first", "last"]) -> Tensor:
    """b t -> b: the first or the last real cell of each row."""
    number, t = torch.arange(valid.shape[1], device=valid.device), valid.shape[1]
    return torch.where(valid, number, t - 1).amin(1) if how == "first" else torch.where(valid, number, 0).amax(1)


def _pool(call: Call) -> Tensor:
    match call.op.how:
        case "mean":
            return call.x[0][int(call.op.by.get("skips", 0)) :].mean(0)
        case how:
            return call.x[0][{"first": 0, "second": 1, "last": -1}[how]]


def _joined_shape(call: Sized) -> tuple[int, ...]:
    return *call.x[0].shape[:-1], sum(one.shape[-1] for one in call.x)


KINDS |= {
    "pool": Kind(_pool, lambda call: call.x[0].shape[1:]),
    "join": Kind(lambda call: torch.cat(call.x, -1), _joined_shape),
}


class VectorHead(Part):
    """vector = W norm(pool(states)), norm and W where the config has them   (Radford et al. 2021; Zhai et al. 2022)"""

    def __init__(self, head: c.VectorHead, stack: c.StackConfig) -> None:
        super().__init__()
        attends = head.pool == "attention"
        self.how: Pool = "last" if head.pool == "last" else "first"
        self.stack = "encoder" if isinstance(stack.input, c.PatchInput) else "decoder"
        self.query = nn.Embedding(1, stack.d_model) if attends else None
        self.attn = Attention(stack) if attends else None
        self.ffn_norm = build_norm(stack) if attends else None
        self.ffn = FeedForward(stack) if attends else None
        self.norm = build_norm(stack, axes="b d") if head.norm else None
        self.output = nn.Linear(stack.d_model, head.width, bias=head.bias) if head.width else None

    def forward(self, states: Tensor, layout: Layout) -> Tensor:
        """b t d (or packed m d) -> b d, or b of the width of the linear layer."""
        x = self.pooled(layout.unpack(states), layout)
        x = x if self.norm is None else self.norm(x)
        return tap(self, "vector", x if self.output is None else self.output(x), "b d")

    def pooled(self, states: Tensor, layout: Layout) -> Tensor:
        """b t d -> b d"""
        if self.query is None or self.attn is None or self.ffn is None or self.ffn_norm is None:
            return pool(states, layout.valid, self.how)
        b = states.shape[0]
        alone = Layout((b, 1), torch.zeros(1, 1, dtype=torch.long, device=states.device))
        attn_bias = AttentionBias.between(alone, layout, dtype=states.dtype)
        x = self.attn(self.query.weight.expand(b, 1, -1), alone, attn_bias, memory=(states, layout))
        return (x + self.ffn(self.ffn_norm(x)))[:, 0]

    def steps(self, to: Steps, path: str, x: str) -> None:
        """Lists the ops of `forward`."""
        x = self.pool_steps(to, path, x)
        x = x if self.norm is None else self.norm.steps(to, f"{path}.norm", x)
        if self.output is None:
            to.do(f"{path}.vector", "copy", x)
            return
        with to.inside(f"{path}.output"):
            to.linear(f"{path}.vector", x, self.output, f"{path}.output")

    def pool_steps(self, to: Steps, path: str, x: str) -> str:
        """Lists the ops of `pooled`; returns the address of the result."""
        if self.query is None or self.attn is None or self.ffn is None or self.ffn_norm is None:
            return to.do(f"{path}.pool", "pool", x, how=self.how)
        to.masks[f"{path}.attn"] = Mask()
        with to.inside(f"{path}.query"):
            query = to.do(f"{path}.query", "learned", x, weights=(f"{path}.query.weight",))
        attn_bias = BiasSteps(f"{path}.attn", self.stack)
        read = self.attn.steps(to, f"{path}.attn", query, attn_bias, memory=x)
        fed = self.ffn.steps(to, f"{path}.ffn", self.ffn_norm.steps(to, f"{path}.ffn_norm", read))
        return to.do(f"{path}.pool", "pool", to.do(f"{path}.sum", "add", read, fed), how="first")


# A copy of the vector for each sequence, which it reads to have one.
KINDS["learned"] = Kind(lambda call: call.w[0], lambda call: call.w[0], width=lambda _: 0)


Readout = c.LanguageHead | c.ClassificationHead | c.TaggingHead | c.SpanHead


class OutputHead(Part, ABC):
    """norm(act(dense(states))), of these what the config has, before an output matrix   (Devlin et al. 2018, masked LM)

    The dense layer leads to `width`, by default d_model.
    """

    output: nn.Linear | LinearMap

    def __init__(self, head: Readout, stack: c.StackConfig, *, axes: str = "b t d", width: int | None = None) -> None:
        super().__init__()
        width = width or stack.d_model
        self.activates = not isinstance(head, c.LanguageHead) or not head.transform_alone
        normalises = head.transform and self.activates
        normalises = normalises and (not isinstance(head, c.TaggingHead) or head.transform_norm)
        self.dense = nn.Linear(stack.d_model, width, bias=head.transform_bias) if head.transform else None
        self.norm = build_norm(stack, width, axes=axes) if normalises else None
        self.act, self.activation = activation_function(stack.activation), stack.activation
        self.scale: float | None = None
        self.soft_cap: float | None = None
        self.dropout = 0.0 if isinstance(head, c.LanguageHead) else head.dropout
        self.reads_end: Literal["first", "last"] | None = None
        """The cell of each sequence that it reads, if it reads only one."""
        self.chunk = NEVER
        """The most logits that `loss` makes at once."""

    def forward(self, states: Tensor, layout: Layout) -> Tensor:
        """b t d (or packed m d) -> b t v (or packed n v), or b v of a head that pools."""
        return layout.trim(self.logits(states, layout))

    @abstractmethod
    def logits(self, states: Tensor, layout: Layout) -> Tensor:
        """b t d (or packed m d) -> the logits, of all m rows when packed."""

    @abstractmethod
    def steps(self, to: Steps, path: str, x: str) -> None:
        """Lists the ops of `forward`."""

    def reads(self, layout: Layout, labels: Tensor | None) -> Tensor | None:
        """n, bool: the valid cells whose states the loss, or without labels the logits, depend on; None for all."""
        if self.reads_end is not None:
            return layout.real(F.one_hot(end(layout.valid_cells, self.reads_end), layout.grid[1]).bool())
        if not isinstance(labels, Tensor) or labels.shape != (layout.n_valid,):
            return None
        return labels != IGNORED

    def loss(self, states: Tensor, layout: Layout, labels: Tensor, *, smoothing: float = 0.0) -> Tensor:
        """Summed cross-entropy in nats; `labels` are those of the valid cells in order, or one a sequence.

        Many logits are made with their gradients, at most `chunk` at a time, and freed before the next are made. Cells
        whose label is IGNORED then get none.
        """
        labels = layout.kept(labels)
        if not self.is_chunked(labels):
            logits = self.logits(states, layout)
            logits = layout.real(logits) if logits.ndim == 3 else logits
            return cross_entropy(logits, layout.fill(labels, logits, IGNORED), smoothing=smoothing)
        states, counted = layout.real(states) if states.ndim == 3 else states, labels != IGNORED
        if counted.all():
            labels = layout.fill(labels, states, IGNORED)
        else:
            states = states if layout.rows is None else states[: len(layout.rows)]
            check_labels(labels, len(states))
            states, labels = states[counted], labels[counted]
        states = self.transform(states)
        states = states if self.scale is None else states * self.scale
        weight, bias = effective_weight(self.output), self.output.bias
        return linear_cross_entropy(states, weight, bias, labels, smoothing=smoothing, chunk=self.chunk)

    def is_chunked(self, labels: Tensor) -> bool:
        """True if `loss` makes the logits for these labels in pieces, or in one, with their gradients."""
        if tracing() or not has_weight(self.output) or not isinstance(labels, Tensor) or labels.ndim != 1:
            return False
        if self.chunk == NEVER:
            return False
        # Pieces break a compiled graph, so there they are made only where memory asks for them.
        limit = min(self.chunk, MANY if torch.compiler.is_compiling() else FEW)
        return len(labels) * self.output.out_features > limit

    def transform(self, x: Tensor) -> Tensor:
        """b t d -> b t e, e the width of the dense layer; x itself if there is no layer."""
        if self.dense is not None:
            x = self.act(self.dense(x)) if self.activates else self.dense(x)
        return x if self.norm is None else self.norm(x)

    def transform_steps(self, to: Steps, path: str, x: str) -> str:
        """Lists the ops of `transform`; returns the address of the result."""
        if self.dense is None:
            return x
        with to.inside(f"{path}.dense"):
            x = to.linear(f"{path}.dense", x, self.dense, f"{path}.dense")
            x = activation_steps(to, f"{path}.act", x, self.activation) if self.activates else x
        return x if self.norm is None else self.norm.steps(to, f"{path}.norm", x)


class PositionHead(OutputHead):
    """logits = dropout(scale transform(states)) @ W^T + b, one row a position; with a cap, cap tanh(logits / cap)."""

    def logits(self, states: Tensor, layout: Layout) -> Tensor:
        """b t d -> b t v (or packed m d -> m v)."""
        states = self.transform(states)
        states = states if self.scale is None else states * self.scale
        logits = self.output(dropout(states, self.dropout, self.training))
        if self.soft_cap is not None:
            logits = self.soft_cap * (logits / self.soft_cap).tanh()
        return tap(self, "logits", logits, "b t v")

    def steps(self, to: Steps, path: str, x: str) -> None:
        x = self.transform_steps(to, path, x)
        with to.inside(f"{path}.output"):
            if self.scale is not None:
                x = to.do(f"{path}.scaled", "scale", x, by={"factor": self.scale})
            out = f"{path}.logits" if self.soft_cap is None else f"{path}.uncapped"
            x = to.linear(out, to.dropout(x, self.dropout), self.output, f"{path}.output")
            to.capped(f"{path}.logits", x, self.soft_cap)


class LanguageHead(PositionHead):
    """logits = states @ W^T, W the token table if tied   (Vaswani et al. 2017, 3.4; Press and Wolf 2017)"""

    def __init__(self, head: c.LanguageHead, stack: c.StackConfig) -> None:
        width = head.width or stack.embed_width
        super().__init__(head, stack, width=width)
        assert isinstance(stack.input, c.TokenInput)
        self.scale, self.soft_cap = head.scale, head.soft_cap
        self.output = nn.Linear(width, stack.input.vocab_size, bias=head.bias)
        self.chunk = CHUNK if head.soft_cap is None else NEVER


class TaggingHead(PositionHead):
    """One row of labels a position; with two labels, where an answer starts and ends."""

    def __init__(self, head: c.TaggingHead | c.SpanHead, stack: c.StackConfig) -> None:
        super().__init__(head, stack)
        n_labels = head.n_labels if isinstance(head, c.TaggingHead) else 2
        self.output = nn.Linear(stack.d_model, n_labels, bias=head.bias)


class ClassificationHead(OutputHead):
    """logits = pool(states) @ W^T + b, one row a sequence or image   (Devlin et al. 2018; Dosovitskiy et al. 2020)"""

    def __init__(self, head: c.ClassificationHead, stack: c.StackConfig) -> None:
        super().__init__(head, stack, axes="b d")
        self.pool = head.pool
        self.skips = stack.input.n_first if head.patches_only and isinstance(stack.input, c.PatchInput) else 0
        self.pooler = nn.Linear(stack.d_model, stack.d_model) if head.pooler else None
        self.pooler_activation, self.pools_last = head.pooler_activation, head.pools_last
        if head.pool in ("first", "last") and not head.distilled:
            self.reads_end = head.pool
        width = stack.d_model * (2 if head.pool == "first_and_mean" else 1)
        self.output = nn.Linear(width, head.n_labels, bias=head.bias)
        self.distilled = nn.Linear(width, head.n_labels, bias=head.bias) if head.distilled else None
        self.unit = 1.0
        """The factor on the numbers of a regression while it is trained (`model/target_scaling.py`)."""

    def logits(self, states: Tensor, layout: Layout) -> Tensor:
        """b t d -> b v, v the labels; padding never counts."""
        states = layout.unpack(states)
        if self.pools_last:
            pooled = self.picked(self.pooled(states), layout)
        else:
            pooled = self.pooled(self.transform(self.picked(states, layout)))
        logits = self.output(dropout(pooled, self.dropout, self.training))
        if self.distilled is not None:
            second = dropout(pool(states, layout.valid, "second"), self.dropout, self.training)
            logits = 0.5 * (logits + self.distilled(second))
        return tap(self, "logits", logits if self.unit == 1.0 else self.unit * logits, "b v")

    def picked(self, states: Tensor, layout: Layout) -> Tensor:
        """b t d -> b d, or b 2d: the states that the head reads."""
        return pool(states, layout.valid, self.pool, skips=self.skips)

    def pooled(self, x: Tensor) -> Tensor:
        """The same shape: the result of the pooler; x itself if there is none."""
        return x if self.pooler is None else ACTIVATIONS[self.pooler_activation](self.pooler(x))

    def steps(self, to: Steps, path: str, x: str) -> None:
        states = x
        if not self.pools_last:
            x = self.transform_steps(to, path, self.pick_steps(to, path, x))
        if self.pooler is not None:
            with to.inside(f"{path}.pooler"):
                x = to.linear(f"{path}.pooler", x, self.pooler, f"{path}.pooler")
                x = to.do(f"{path}.pooled", "activation", x, how=self.pooler_activation)
        if self.pools_last:
            x = self.pick_steps(to, path, x)
        out = f"{path}.logits" if self.distilled is None else f"{path}.undistilled"
        with to.inside(f"{path}.output"):
            x = to.linear(out, to.dropout(x, self.dropout), self.output, f"{path}.output")
        if self.distilled is not None:
            with to.inside(f"{path}.distilled"):
                second = to.dropout(to.do(f"{path}.second", "pool", states, how="second"), self.dropout)
                second = to.linear(f"{path}.distilled", second, self.distilled, f"{path}.distilled")
                to.do(f"{path}.logits", "scale", to.do(f"{path}.both", "add", x, second), by={"factor": 0.5})

    def pick_steps(self, to: Steps, path: str, x: str) -> str:
        """Lists the ops of `picked`; returns the address of the result."""
        by = {"skips": float(self.skips)} if self.skips else None
        if self.pool != "first_and_mean":
            return to.do(f"{path}.pool", "pool", x, how=self.pool, by=by)
        first, mean = (
            to.do(f"{path}.first", "pool", x, how="first"),
            to.do(f"{path}.mean", "pool", x, how="mean", by=by),
        )
        return to.do(f"{path}.pool", "join", first, mean)


def scores(head: c.ClassificationHead, logits: Tensor) -> Tensor:
    """... v -> the same shape: the probability of each label, or the numbers of a regression."""
    if head.problem_type == "regression":
        return logits
    alone = head.problem_type == "multi_label_classification" or head.n_labels == 1
    return logits.sigmoid() if alone else logits.softmax(-1)


class NoHead(Part):
    """The states themselves."""

    def __init__(self, head: c.NoHead, stack: c.StackConfig) -> None:
        super().__init__()
        self.pooler = nn.Linear(stack.d_model, stack.d_model) if head.pooler else None

    def forward(self, states: Tensor, layout: Layout) -> Tensor:
        """b t d -> b t d (or packed m d -> n d)."""
        return layout.trim(states)

    def steps(self, to: Steps, path: str, x: str) -> None:
        """Lists no op, because there are no logits."""

    def pooled(self, states: Tensor, layout: Layout) -> Tensor:
        """b t d (or packed m d) -> b d: tanh(dense(first real state)), of a head with a pooler."""
        assert self.pooler is not None
        return self.pooler(pool(layout.unpack(states), layout.valid, "first")).tanh()


def build_head(config: c.ModelConfig) -> nn.Module:
    """The head for a config."""
    match config.head:
        case c.LanguageHead() as head:
            return LanguageHead(head, config.output)
        case c.ClassificationHead() as head:
            return ClassificationHead(head, config.output)
        case c.TaggingHead() | c.SpanHead() as head:
            return TaggingHead(head, config.output)
        case c.VectorHead() as head:
            return VectorHead(head, config.output)
        case c.NoHead() as head:
            return NoHead(head, config.output)
