"""What a network says at the end: words, a class, a tag for each word, or a span."""

import torch
from torch import Tensor, nn

from clearhead import config as c
from clearhead.model.feedforward import ACTIVATIONS
from clearhead.model.layout import Layout
from clearhead.model.norm import build_norm
from clearhead.trace import tap


class LanguageHead(nn.Module):
    """logits = states @ W^T, W the token table where tied   (Vaswani et al. 2017, 3.4; Press and Wolf 2017)"""

    def __init__(self, head: c.LanguageHead, stack: c.StackConfig) -> None:
        super().__init__()
        assert isinstance(stack.input, c.TokenInput)
        d = stack.d_model
        self.scale, self.soft_cap = head.scale, head.soft_cap
        self.dense = nn.Linear(d, d) if head.transform else None
        self.norm = build_norm(stack) if head.transform else None
        self.act = ACTIVATIONS[stack.activation]
        self.output = nn.Linear(d, stack.input.vocab_size, bias=head.bias)

    def forward(self, states: Tensor, layout: Layout) -> Tensor:
        """b t d -> b t v (or packed n d -> n v)."""
        if self.dense is not None and self.norm is not None:
            states = self.norm(self.act(self.dense(states)))
        if self.scale is not None:
            states = states * self.scale
        logits = self.output(states)
        if self.soft_cap is not None:
            logits = self.soft_cap * (logits / self.soft_cap).tanh()
        return tap(self, "logits", logits, "b t v")


class ClassificationHead(nn.Module):
    """logits = pool(states) @ W^T + b, one row a sequence or image   (Devlin et al. 2018; Dosovitskiy et al. 2020)"""

    def __init__(self, head: c.ClassificationHead, stack: c.StackConfig) -> None:
        super().__init__()
        self.pool = head.pool
        self.pooler = nn.Linear(stack.d_model, stack.d_model) if head.pooler else None
        self.output = nn.Linear(stack.d_model, head.n_labels)

    def forward(self, states: Tensor, layout: Layout) -> Tensor:
        """b t d -> b v, v the labels; padding never counts."""
        pooled = self.pooled(layout.unpack(states), layout.valid)
        pooled = pooled if self.pooler is None else self.pooler(pooled).tanh()
        return tap(self, "logits", self.output(pooled), "b v")

    def pooled(self, x: Tensor, valid: Tensor | None) -> Tensor:
        """b t d -> b d: the first real state, the last, or the mean of all."""
        b, t = x.shape[:2]
        valid = torch.ones(b, t, dtype=torch.bool, device=x.device) if valid is None else valid
        if self.pool == "mean":
            return (x * valid[..., None]).sum(1) / valid.sum(1, keepdim=True)
        number = torch.arange(t, device=x.device)
        which = (
            torch.where(valid, number, t).amin(1) if self.pool == "first" else torch.where(valid, number, -1).amax(1)
        )
        return x[torch.arange(b, device=x.device), which]


class TaggingHead(nn.Module):
    """logits = states @ W^T + b, one row a position; with two labels, where an answer starts and ends."""

    def __init__(self, n_labels: int, stack: c.StackConfig) -> None:
        super().__init__()
        self.output = nn.Linear(stack.d_model, n_labels)

    def forward(self, states: Tensor, layout: Layout) -> Tensor:
        """b t d -> b t v (or packed n d -> n v), v the labels."""
        return tap(self, "logits", self.output(states), "b t v")


class NoHead(nn.Module):
    """The states themselves."""

    def forward(self, states: Tensor, layout: Layout) -> Tensor:
        """b t d -> b t d."""
        return states


def build_head(config: c.ModelConfig) -> nn.Module:
    """The head a config asks for."""
    match config.head:
        case c.LanguageHead() as head:
            return LanguageHead(head, config.output)
        case c.ClassificationHead() as head:
            return ClassificationHead(head, config.output)
        case c.TaggingHead() as head:
            return TaggingHead(head.n_labels, config.output)
        case c.SpanHead():
            return TaggingHead(2, config.output)
        case c.NoHead():
            return NoHead()
