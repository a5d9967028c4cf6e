"""Attention without a softmax, whose cost grows with the length, not with its square. The engine does not have it."""

import torch.nn.functional as F
from torch import Tensor

from clearhead.model import Transformer
from clearhead.model.attention import Attention
from clearhead.model.attention_bias import AttentionBias


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
