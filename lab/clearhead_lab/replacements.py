"""Replacements for parts of a network: BatchNorm, linear attention, a mixture of experts, position numbers."""

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.config import StackConfig
from clearhead.model import Transformer
from clearhead.model.attention import Attention
from clearhead.model.attention_bias import AttentionBias
from clearhead.model.feedforward import FeedForward
from clearhead.model.norm import LayerNorm
from clearhead.model.positions import LearnedEncoding
from clearhead.model.transformer import draw


class BatchNorm(nn.Module):
    """(x - mean) / sqrt(var + eps) * weight + bias, each feature over all cells of the batch (Ioffe and Szegedy 2015)

    Outside training it takes the running mean and variance of training.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        """b t d -> b t d."""
        return self.norm(x.flatten(0, -2)).view_as(x)


def with_batch_norm(network: Transformer) -> Transformer:
    """Puts a BatchNorm in place of each LayerNorm, in place; returns the network."""
    for name, module in list(network.named_modules()):
        if isinstance(module, LayerNorm):
            network.set_submodule(name, BatchNorm(module.width))
    return network


def attend_linearly(q: Tensor, k: Tensor, v: Tensor, attn_bias: AttentionBias, group: int) -> Tensor:
    """z = f(Q) (f(K)^T V) / (f(Q) sum_s f(K)_s),  f(x) = elu(x) + 1   (Katharopoulos et al. 2020, 3.2)

    All are b h t k, and every position sees all others. A head keeps f(K)^T V of the text, a matrix of the same size
    whatever the length.
    """
    assert attn_bias.mask is None
    assert group == 1
    q, k = F.elu(q) + 1, F.elu(k) + 1
    return q @ (k.mT @ v) / (q @ k.sum(2)[..., None])


def with_linear_attention(network: Transformer) -> Transformer:
    """Makes each attention linear, in place, with the same four maps; returns the network."""
    for module in network.modules():
        if isinstance(module, Attention):
            make_linear(module)
    return network


def make_linear(attention: Attention) -> Attention:
    """Makes one attention linear, in place, and returns it."""
    attention.kernel = "explicit"
    attention.explicit = attend_linearly  # pyrefly: ignore
    return attention


RATE = 0.01
"""By how much the choice's bias changes in a step."""


class Experts(nn.Module):
    """y = p_e(x) FFN_e(x), e = argmax(p(x) + bias), p = softmax(x W)   (Fedus et al. 2021, one expert a position)

    The bias is not learned, and only the choice sees it: it falls for each expert with more than its share of the
    positions (Wang et al. 2024, balance without a loss of its own).
    """

    bias: Tensor

    def __init__(self, config: StackConfig, n: int) -> None:
        super().__init__()
        self.router = nn.Linear(config.d_model, n, bias=False)
        self.experts = nn.ModuleList(FeedForward(config) for _ in range(n))
        self.register_buffer("bias", torch.zeros(n))
        self.chosen: Tensor | None = None
        """The expert of each position of the last call, in order."""

    def forward(self, x: Tensor) -> Tensor:
        """b t d -> b t d; a position goes through its expert alone."""
        rows = x.flatten(0, -2)
        shares = self.router(rows).softmax(-1)
        chosen = self.chosen = (shares.detach() + self.bias).argmax(-1)
        out = torch.zeros_like(rows)
        for i, expert in enumerate(self.experts):
            its = (chosen == i).nonzero()[:, 0]
            out = out.index_add(0, its, expert(rows[its][None])[0])
        if self.training:
            load = chosen.bincount(minlength=len(self.experts)) / len(chosen)
            self.bias -= RATE * (load - load.mean()).sign()
        return (out * shares.gather(1, chosen[:, None])).view_as(x)


def with_experts(network: Transformer, n: int) -> Transformer:
    """Puts n experts in place of each feed-forward, in place, each as wide as that; returns the network."""
    config = network.last_stack.config
    for name, module in list(network.named_modules()):
        if isinstance(module, FeedForward):
            made = Experts(config, n)
            draw(made, network.config.init)
            network.set_submodule(name, made)
    return network


def mixtures(network: Transformer) -> list[Experts]:
    """The mixtures of a network, the first block's first."""
    return [cast("Experts", block.get_submodule("ffn")) for block in network.last_stack.blocks]


def normalised(positions: Sequence[int] | Tensor, length: int) -> Tensor:
    """p / length: in [0, 1], but the same step means another distance in every length."""
    return torch.as_tensor(positions, dtype=torch.float64) / length


def counted(positions: Sequence[int] | Tensor) -> Tensor:
    """p itself: without a bound."""
    return torch.as_tensor(positions, dtype=torch.float64)


def fix_positions(network: Transformer, table: Tensor) -> None:
    """Replaces the learned positions of a network by these vectors, t d, and freezes them."""
    encoding = network.last_stack.positions
    assert isinstance(encoding, LearnedEncoding)
    encoding.table.weight.data = table
    encoding.table.weight.requires_grad_(False)
