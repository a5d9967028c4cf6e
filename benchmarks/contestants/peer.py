"""The peer: `torch.nn.Transformer` as its documentation has it, on the same sentences, padded.

Given to it: batches by length from our own plan (or, for comparison, at random), collated before the clock starts;
`norm_first`, `batch_first`; the causal hint, and no padding mask for the targets, whose padding is in nobody's past;
autocast where it is faster; the fused AdamW. Not given: what a user of PyTorch would not have without asking, such as
our settings of the allocator.
"""

import itertools
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from benchmarks.contestants.contestant import Contestant, Facts
from benchmarks.contestants.workload import BOS, EOS, PAD, Plan, Workload, by_length
from clearhead.recipe.training import MatmulPrecision


@dataclass(frozen=True)
class PaddedBatch:
    """b s, b t, b t."""

    source: Tensor
    target: Tensor
    labels: Tensor
    n_tokens: int


class PaddedNetwork(nn.Module, ABC):
    """What a PyTorch user trains."""

    @abstractmethod
    def loss(self, batch: PaddedBatch) -> Tensor:
        """Smoothed cross-entropy, the mean over the real target tokens."""


class PeerTransformer(PaddedNetwork):
    """Embedding, sinusoidal positions, nn.Transformer, the embedding again as the output matrix."""

    positions: Tensor

    def __init__(self, w: Workload) -> None:
        super().__init__()
        self.smoothing = w.label_smoothing
        self.embedding = nn.Embedding(w.vocab_size, w.d_model)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.dropout = nn.Dropout(w.dropout)
        with warnings.catch_warnings():
            # It says that inference on nested tensors is off with norm_first, and nobody infers here.
            warnings.filterwarnings("ignore", message="enable_nested_tensor")
            self.transformer = nn.Transformer(
                d_model=w.d_model,
                nhead=w.n_heads,
                num_encoder_layers=w.n_layers,
                num_decoder_layers=w.n_layers,
                dim_feedforward=w.d_ff,
                dropout=w.dropout,
                batch_first=True,
                norm_first=True,
            )
        self.register_buffer("positions", sinusoids(w.longest + 1, w.d_model), persistent=False)

    def embed(self, ids: Tensor) -> Tensor:
        """b t -> b t d"""
        scale = math.sqrt(self.embedding.embedding_dim)
        return self.dropout(self.embedding(ids) * scale + self.positions[: ids.shape[1]])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """b s, b t -> b t v"""
        padding = source == PAD
        mask = padding if padding.any() else None
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        states = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=causal,
            src_key_padding_mask=mask,
            memory_key_padding_mask=mask,
            tgt_is_causal=True,
        )
        return F.linear(states, self.embedding.weight)

    def loss(self, batch: PaddedBatch) -> Tensor:
        logits, labels = self(batch.source, batch.target).flatten(0, 1), batch.labels.flatten()
        return F.cross_entropy(logits, labels, ignore_index=PAD, label_smoothing=self.smoothing)


def sinusoids(length: int, d_model: int) -> Tensor:
    """PE(p, 2i) = sin(p w_i), PE(p, 2i+1) = cos(p w_i), w_i = 10000^(-2i/d)   (Vaswani et al. 2017, 3.5)"""
    angle = torch.arange(length)[:, None] * torch.exp(torch.arange(0, d_model, 2) * (-math.log(10_000) / d_model))
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)


class Peer(Contestant):
    """The loop that a PyTorch user writes."""

    def __init__(
        self,
        workload: Workload,
        threads: int | None,
        *,
        bf16: bool,
        network: Callable[[Workload], PaddedNetwork] = PeerTransformer,
        plan: Plan = by_length,
    ) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        w = self.workload = workload
        torch.manual_seed(w.seed)
        self.bf16, self.plan = bf16, plan
        self.network = network(w).train()
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(), lr=w.lr, betas=w.betas, eps=w.eps, weight_decay=0.0, fused=True
        )
        self.feed = self.batches()
        self.ready: list[PaddedBatch] = []

    def facts(self) -> Facts:
        n_parameters = sum(p.numel() for p in self.network.parameters())
        return Facts(n_parameters=n_parameters, precision="bf16" if self.bf16 else "fp32")

    def arithmetic(self) -> tuple[str, MatmulPrecision]:
        return "bf16" if self.bf16 else "fp32", "highest"

    def batches(self) -> Iterator[PaddedBatch]:
        """Epoch after epoch."""
        source, target = self.workload.sentences()
        lengths = [(len(s) + 1, len(t) + 1) for s, t in zip(source, target, strict=True)]
        for epoch in itertools.count():
            for examples in self.plan(lengths, self.workload, epoch):
                yield PaddedBatch(
                    source=padded([[*source[i], EOS] for i in examples]),
                    target=padded([[BOS, *target[i]] for i in examples]),
                    labels=padded([[*target[i], EOS] for i in examples]),
                    n_tokens=sum(len(target[i]) + 1 for i in examples),
                )

    def prepare(self, n_steps: int) -> None:
        self.ready = list(itertools.islice(self.feed, n_steps))

    def steps(self, n_steps: int) -> tuple[int, float]:
        losses = [self.step(batch) for batch in self.ready]
        return sum(batch.n_tokens for batch in self.ready), losses[-1]

    def step(self, batch: PaddedBatch) -> float:
        """Forward, loss, backward, clip, update; the loss."""
        w = self.workload
        self.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            loss = self.network.loss(batch)
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), w.clip)
        self.optimizer.step()
        return loss.item()


def padded(sequences: list[list[int]]) -> Tensor:
    """Sequences of ids -> b t"""
    return pad_sequence([torch.tensor(ids) for ids in sequences], batch_first=True, padding_value=PAD)
