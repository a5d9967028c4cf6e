"""A peer: the encoder-decoder written out plainly, as the well-known annotated walkthrough of the paper does it.

Three projections for queries, keys and values, scores and weights as matrices, -1e9 where a key may not be seen, norms
step by step, and the divergence from a smoothed distribution over the whole vocabulary, kept for every position.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.contestants.peer import PaddedBatch, PaddedNetwork, sinusoids
from benchmarks.contestants.workload import PAD, Workload


class Norm(nn.Module):
    """(x - mean) / sqrt(var + eps) * weight + bias   (Ba et al. 2016)"""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width)), eps

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        variance = (x - mean).square().mean(-1, keepdim=True)
        return self.weight * (x - mean) / (variance + self.eps).sqrt() + self.bias


class Attention(nn.Module):
    """softmax(Q K^T / sqrt(d)) V of each head, then one projection   (Vaswani et al. 2017, 3.2)"""

    def __init__(self, w: Workload) -> None:
        super().__init__()
        self.n_heads = w.n_heads
        self.q, self.k, self.v, self.out = (nn.Linear(w.d_model, w.d_model) for _ in range(4))
        self.dropout = nn.Dropout(w.dropout)

    def forward(self, x: Tensor, memory: Tensor, seen: Tensor) -> Tensor:
        """b t d, b s d, b 1 (1 or t) s -> b t d"""
        q, k, v = (
            project(part).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for project, part in ((self.q, x), (self.k, memory), (self.v, memory))
        )
        scores = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).masked_fill(~seen, -1e9)
        weights = self.dropout(scores.softmax(-1))
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """x + f(norm(x)) for self-attention, in a decoder cross-attention, and feed-forward."""

    def __init__(self, w: Workload, *, crosses: bool) -> None:
        super().__init__()
        self.attn, self.attn_norm = Attention(w), Norm(w.d_model)
        self.cross, self.cross_norm = (Attention(w), Norm(w.d_model)) if crosses else (None, None)
        self.up, self.down, self.ffn_norm = nn.Linear(w.d_model, w.d_ff), nn.Linear(w.d_ff, w.d_model), Norm(w.d_model)
        self.dropout = nn.Dropout(w.dropout)

    def forward(self, x: Tensor, seen: Tensor, memory: Tensor | None = None, source: Tensor | None = None) -> Tensor:
        """b t d -> b t d; `seen` of its own keys, `source` of the memory's."""
        normed = self.attn_norm(x)
        x = x + self.dropout(self.attn(normed, normed, seen))
        if self.cross is not None and self.cross_norm is not None and memory is not None and source is not None:
            x = x + self.dropout(self.cross(self.cross_norm(x), memory, source))
        return x + self.dropout(self.down(self.dropout(self.up(self.ffn_norm(x)).relu())))


class Annotated(PaddedNetwork):
    """Embedding, sinusoidal positions, layers, norms, the embedding again as the output matrix."""

    positions: Tensor

    def __init__(self, w: Workload) -> None:
        super().__init__()
        self.smoothing, self.vocab_size = w.label_smoothing, w.vocab_size
        self.embedding = nn.Embedding(w.vocab_size, w.d_model)
        self.encoder = nn.ModuleList(Layer(w, crosses=False) for _ in range(w.n_layers))
        self.decoder = nn.ModuleList(Layer(w, crosses=True) for _ in range(w.n_layers))
        self.encoder_norm, self.decoder_norm = Norm(w.d_model), Norm(w.d_model)
        self.dropout = nn.Dropout(w.dropout)
        self.register_buffer("positions", sinusoids(w.longest + 1, w.d_model), persistent=False)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.xavier_uniform_(parameter)
        nn.init.normal_(self.embedding.weight, std=0.02)

    def embed(self, ids: Tensor) -> Tensor:
        """b t -> b t d"""
        scale = math.sqrt(self.embedding.embedding_dim)
        return self.dropout(self.embedding(ids) * scale + self.positions[: ids.shape[1]])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """b s, b t -> b t v"""
        length = target.shape[1]
        of_source = (source != PAD)[:, None, None]
        of_target = (target != PAD)[:, None, None] & torch.ones(length, length, dtype=torch.bool).tril()
        x, y = self.embed(source), self.embed(target)
        for layer in self.encoder:
            x = layer(x, of_source)
        memory = self.encoder_norm(x)
        for layer in self.decoder:
            y = layer(y, of_target, memory, of_source)
        return F.linear(self.decoder_norm(y), self.embedding.weight)

    def loss(self, batch: PaddedBatch) -> Tensor:
        log_p = self(batch.source, batch.target).log_softmax(-1).flatten(0, 1)
        labels = batch.labels.flatten()
        others = self.smoothing / (self.vocab_size - 2)  # neither the label nor padding
        smoothed = torch.full_like(log_p, others).scatter_(1, labels[:, None], 1 - self.smoothing)
        smoothed[:, PAD] = 0
        smoothed[labels == PAD] = 0
        # What is minimised is the divergence; cross-entropy is more by a constant, and what the others report.
        divergence = F.kl_div(log_p, smoothed, reduction="sum") / batch.n_tokens
        entropy = -sum(n * p * math.log(p) for n, p in ((1, 1 - self.smoothing), (self.vocab_size - 2, others)) if p)
        return divergence + entropy
