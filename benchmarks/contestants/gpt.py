"""A decoder that models language, in plain PyTorch, as the best known small implementations write it.

The design is that of a compact GPT-2: learned positions, pre-norm, one matrix for queries, keys and values, PyTorch's
fused attention, GELU, a head tied to the table, logits in one product, AdamW fused, bfloat16 by autocast, compiled.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor, nn

from benchmarks.contestants.contestant import Contestant, Facts
from clearhead.config import Config, Probability
from clearhead.recipe.training import MatmulPrecision


class GptWorkload(Config):
    """Network, text and optimizer of the language-model benchmarks, the same for all."""

    kind: Literal["gpt"] = "gpt"
    d_model: PositiveInt = 384
    n_layers: PositiveInt = 6
    n_heads: PositiveInt = 6
    vocab_size: PositiveInt = 8192
    length: PositiveInt = 256
    batch: PositiveInt = 16
    """Rows of a batch."""
    dropout: Probability = 0.0
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Ours."""
    n_batches: PositiveInt = 40
    seed: int = 0

    lr: PositiveFloat = 6e-4
    betas: tuple[Probability, Probability] = (0.9, 0.95)
    eps: PositiveFloat = 1e-8
    weight_decay: NonNegativeFloat = 0.1
    clip: PositiveFloat = 1.0

    @property
    def counted(self) -> str:
        """What the rate counts."""
        return "tokens"

    @property
    def described(self) -> str:
        """For a report."""
        return (
            f"{self.n_layers} layers x {self.d_model}, vocabulary {self.vocab_size}, dropout {self.dropout},"
            f" in batches of {self.batch} x {self.length} tokens"
        )

    def words(self) -> np.ndarray:
        """The text as ids from 0, after Zipf: enough for `n_batches`, then from the start again."""
        random = np.random.default_rng(self.seed)
        weight = 1 / (np.arange(self.vocab_size - N_SPECIAL) + 2.7)
        return random.choice(len(weight), size=self.n_batches * self.batch * self.length + 1, p=weight / weight.sum())


N_SPECIAL = 4


class Layer(nn.Module):
    """x + attention(norm(x)), x + mlp(norm(x))"""

    def __init__(self, w: GptWorkload) -> None:
        super().__init__()
        self.n_heads, self.p = w.n_heads, w.dropout
        self.norm_1, self.norm_2 = nn.LayerNorm(w.d_model), nn.LayerNorm(w.d_model)
        self.qkv, self.out = nn.Linear(w.d_model, 3 * w.d_model), nn.Linear(w.d_model, w.d_model)
        self.up, self.down = nn.Linear(w.d_model, 4 * w.d_model), nn.Linear(4 * w.d_model, w.d_model)
        self.dropout = nn.Dropout(w.dropout)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for part in self.qkv(self.norm_1(x)).chunk(3, -1)
        )
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.p if self.training else 0.0)
        x = x + self.dropout(self.out(z.transpose(1, 2).flatten(2)))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm_2(x)))))


class PlainGpt(nn.Module):
    """Token and position tables, layers, norm, tied head, loss."""

    def __init__(self, w: GptWorkload) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(w.vocab_size, w.d_model), nn.Embedding(w.length, w.d_model)
        self.dropout = nn.Dropout(w.dropout)
        self.layers = nn.ModuleList(Layer(w) for _ in range(w.n_layers))
        self.norm = nn.LayerNorm(w.d_model)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        """b t, b t -> the mean loss."""
        x = self.dropout(self.table(ids) + self.places.weight[: ids.shape[1]])
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.norm(x), self.table.weight)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


class PlainPyTorch(Contestant):
    """The loop that goes with it."""

    def __init__(self, workload: GptWorkload, threads: int | None, *, bf16: bool, compiled: bool) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        w = self.workload = workload
        torch.manual_seed(w.seed)
        self.bf16, self.compiled = bf16, compiled
        self.network = self.build().train()
        self.forward = torch.compile(self.network) if compiled else self.network
        groups = [
            {"params": [p for p in self.network.parameters() if p.ndim >= 2], "weight_decay": w.weight_decay},
            {"params": [p for p in self.network.parameters() if p.ndim < 2], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=w.lr, betas=w.betas, eps=w.eps, fused=True)
        self.feed, self.ready = self.batches(), list[tuple[Tensor, Tensor]]()

    def build(self) -> nn.Module:
        """The network, which gives the loss of (ids, labels)."""
        return PlainGpt(self.workload)

    def facts(self) -> Facts:
        n_parameters = sum(p.numel() for p in self.network.parameters())
        how = ("bf16" if self.bf16 else "fp32") + (", compiled" if self.compiled else "")
        return Facts(n_parameters=n_parameters, precision=how)

    def arithmetic(self) -> tuple[str, MatmulPrecision]:
        return "bf16" if self.bf16 else "fp32", "highest"

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Rows of the text one after the other, round and round."""
        w = self.workload
        text = torch.from_numpy(w.words() + N_SPECIAL)
        for i in itertools.count():
            start = i % w.n_batches * w.batch * w.length
            part = text[start : start + w.batch * w.length + 1]
            yield part[:-1].view(w.batch, w.length), part[1:].view(w.batch, w.length)

    def prepare(self, n_steps: int) -> None:
        self.ready = list(itertools.islice(self.feed, n_steps))

    def steps(self, n_steps: int) -> tuple[int, float]:
        losses = [self.step(*batch) for batch in self.ready]
        return sum(labels.numel() for _, labels in self.ready), losses[-1]

    def step(self, ids: Tensor, labels: Tensor) -> float:
        """Forward, loss, backward, clip, update; the loss."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            loss = self.forward(ids, labels)
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), self.workload.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()


class Transformers(PlainPyTorch):
    """The same loop around `transformers`' GPT-2 with its `sdpa` attention."""

    def build(self) -> nn.Module:
        from transformers import GPT2Config, GPT2LMHeadModel

        w = self.workload
        config = GPT2Config(
            vocab_size=w.vocab_size, n_positions=w.length, n_embd=w.d_model, n_layer=w.n_layers, n_head=w.n_heads,
            resid_pdrop=w.dropout, embd_pdrop=w.dropout, attn_pdrop=w.dropout, use_cache=False,
            bos_token_id=None, eos_token_id=None,
        )  # fmt: skip
        model = GPT2LMHeadModel._from_config(config, attn_implementation="sdpa")
        return Logits(model, lambda ids: model(ids).logits)


class XTransformers(PlainPyTorch):
    """The same loop around `x-transformers`' decoder with its fused attention; most of its layers have no bias."""

    def build(self) -> nn.Module:
        from x_transformers import Decoder, TransformerWrapper

        w = self.workload
        layers = Decoder(
            dim=w.d_model, depth=w.n_layers, heads=w.n_heads, attn_dim_head=w.d_model // w.n_heads, attn_flash=True,
            attn_dropout=w.dropout, ff_dropout=w.dropout,
        )  # fmt: skip
        model = TransformerWrapper(
            num_tokens=w.vocab_size, max_seq_len=w.length, emb_dropout=w.dropout, attn_layers=layers, tie_embedding=True
        )
        nn.init.normal_(model.get_parameter("token_emb.emb.weight"), std=0.02)
        return Logits(model, model)


class Logits(nn.Module):
    """The loss of somebody else's logits."""

    def __init__(self, model: nn.Module, logits: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.logits = model, logits

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        """b t, b t -> the mean loss."""
        return F.cross_entropy(self.logits(ids).flatten(0, 1), labels.flatten())
