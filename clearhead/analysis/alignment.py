"""Cross-attention as a word alignment: the source token of each target token."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.brief import brief
from clearhead.errors import UserError
from clearhead.generation import in_batches
from clearhead.model import Tokens, Transformer
from clearhead.model.mode import Evaluating
from clearhead.trace import trace


@dataclass(frozen=True)
class CrossAttention:
    """One pair's cross-attention and the probability of each target token."""

    __repr__ = brief

    weights: Tensor
    """l h t s: row t is the attention of the step that produced target token t."""
    probabilities: Tensor
    """t: the network's probability of each target token."""


def cross_attention(
    network: Transformer,
    source: Sequence[Sequence[int]],
    target: Sequence[Sequence[int]],
    *,
    bos_id: int,
    budget: int = 8192,
) -> list[CrossAttention]:
    """Cross-attention of every decoder layer under teacher forcing, one result for each pair, in order.

    `source` has the tokens that the encoder reads, and `target` has no bos. Row t is the attention with which the
    network produced target[t] after target[:t].

    Raises UserError for a network without cross-attention.
    """
    if network.encoder is None or network.decoder is None:
        raise UserError("cross-attention: expected an encoder-decoder, got a single stack, which has none")
    result: list[CrossAttention | None] = [None] * len(source)
    lengths = [len(s) + len(t) for s, t in zip(source, target, strict=True)]
    for which in in_batches(lengths, budget=budget):
        looks = _batch(network, [source[i] for i in which], [target[i] for i in which], bos_id)
        for i, look in zip(which, looks, strict=True):
            result[i] = look
    return [found for found in result if found is not None]


def _batch(
    network: Transformer, source: Sequence[Sequence[int]], target: Sequence[Sequence[int]], bos_id: int
) -> Iterator[CrossAttention]:
    assert network.decoder is not None
    device = next(network.parameters()).device
    inputs = Tokens.pad([[bos_id, *ids[:-1]] for ids in target]).to(device)
    with Evaluating(network), torch.no_grad(), trace(network) as seen:
        logits = network(Tokens.pad(source).to(device), inputs)
        # Keep only the probabilities of the targets: all of them are as large as the vocabulary.
        ids = Tokens.pad(target).to(device).ids
        chosen = (logits.gather(-1, ids[..., None])[..., 0] - logits.logsumexp(-1)).exp().cpu()
    layers = [seen[f"decoder.blocks.{i}.cross.weights"] for i in range(len(network.decoder.blocks))]
    weights = torch.stack(layers, 1).float().cpu()
    for b, (s, t) in enumerate(zip(source, target, strict=True)):
        yield CrossAttention(weights[b, :, :, : len(t), : len(s)], chosen[b, : len(t)])


def aligned(attention: CrossAttention, layer: int) -> list[int]:
    """The source token that one layer's heads attend to most on average, for each target token."""
    return attention.weights[layer].mean(0).argmax(-1).tolist()
