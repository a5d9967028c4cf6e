"""Statistics of attention heads, measured from their weights, and cross-attention as an alignment of words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from clearhead.analysis.passes import Inputs, Seen, by_stack, inference, layouts
from clearhead.brief import brief
from clearhead.errors import UserError
from clearhead.generation import in_batches
from clearhead.model import Layout, Tokens, Transformer
from clearhead.model.attention import Attention
from clearhead.model.linear import effective_weight
from clearhead.progress import pieces
from clearhead.trace import trace

HeadKind = Literal["previous", "same", "next", "first", "uniform", "other"]

POINTED = 0.5
"""A head with at least this share of its weight on one place is named after that place."""
UNIFORM = 0.9
"""A head whose entropy is at least this share of the largest possible one counts as uniform."""


@dataclass(frozen=True)
class HeadStatistics:
    """One head over a batch. Shares are means over real queries that have such a key, and 0 without queries."""

    entropy: float
    """-sum_s w log w, in nats, mean over the real queries."""
    relative_entropy: float
    """The entropy as a share of log(number of keys with a weight), over the queries with at least two."""
    previous: float
    same: float
    next: float
    first: float
    """Share on the key of position 0, which is often a sink for attention without a target."""
    offset: int
    """The diagonal with the most weight: s - t in positions. Of equal ones, the one nearer to 0."""
    offset_share: float
    distance: float
    """sum_s w |s - t| in positions."""

    @property
    def kind(self) -> HeadKind:
        """The place with the largest weight, if at least POINTED; otherwise uniform from UNIFORM on, or other."""
        places: dict[HeadKind, float] = {
            "first": self.first, "previous": self.previous, "same": self.same, "next": self.next
        }  # fmt: skip
        best = max(places, key=lambda place: places[place])
        if places[best] >= POINTED:
            return best
        return "uniform" if self.relative_entropy >= UNIFORM else "other"


def head_statistics(network: Transformer, inputs: Inputs, seen: Seen) -> dict[str, HeadStatistics]:
    """The statistics of every head by address (`….attn.weights[h=2]`), from a trace of these inputs in one pass."""
    found: dict[str, HeadStatistics] = {}
    layout = layouts(network, by_stack(network, inputs))
    for path, (queries, keys) in pieces(_attentions(network, layout).items()):
        each = statistics(seen[f"{path}.weights"], queries, keys)
        found |= {f"{path}.weights[h={h}]": one for h, one in enumerate(each)}
    return found


def statistics(weights: Tensor, queries: Layout, keys: Layout | None = None) -> list[HeadStatistics]:
    """Statistics of each head of `weights`, b h t s, without padding. If `keys` is None, queries are keys."""
    keys = keys or queries
    asks, holds = queries.valid_cells, keys.valid_cells
    if weights.shape[0::2] != asks.shape or weights.shape[-1] != holds.shape[1]:
        raise UserError(f"weights {list(weights.shape)}: expected b h t s of {queries.grid} queries, {keys.grid} keys")
    weights = weights.double() * (asks[:, None, :, None] & holds[:, None, None, :])
    distance = _positions(keys)[:, None, :] - _positions(queries)[:, :, None]
    pairs = asks[:, :, None] & holds[:, None, :]
    starts = (_positions(keys) == 0)[:, None, :].expand_as(pairs)
    places = {"first": starts, "previous": distance == -1, "same": distance == 0, "next": distance == 1}
    shares = {name: _share(weights, place & pairs) for name, place in places.items()}
    n = max(1, int(asks.sum()))
    entropy = -torch.special.xlogy(weights, weights).sum(-1)
    choices = (weights > 0).sum(-1)
    relative = _mean(entropy / choices.clamp(min=2).log(), choices >= 2)
    apart = (weights * distance.abs()[:, None]).sum((0, 2, 3)) / n
    offsets, diagonals = _diagonals(weights, distance, n)
    mean_entropy = entropy.sum((0, 2)) / n
    return [
        HeadStatistics(
            entropy=float(mean_entropy[h]),
            relative_entropy=float(relative[h]),
            **{name: float(share[h]) for name, share in shares.items()},
            offset=int(offsets[h]),
            offset_share=float(diagonals[h]),
            distance=float(apart[h]),
        )
        for h in range(weights.shape[1])
    ]


def weighted_norms(network: Transformer, seen: Seen, path: str) -> Tensor:
    """|| w_ts v_s W_O^h ||: how much each key contributed, b h t s, at `path`   (Kobayashi et al. 2020)

    Unlike a weight, this includes the size of the value, which is small for a sink.
    """
    attention = dict(network.named_modules()).get(path)
    if not isinstance(attention, Attention):
        raise UserError(f"{path}: expected an attention, such as decoder.blocks.0.attn")
    with torch.no_grad():
        weights, v = seen[f"{path}.weights"], seen[f"{path}.v"]
        v = v.repeat_interleave(attention.n_heads // v.shape[1], 1)
        per_head = effective_weight(attention.out).unflatten(1, (attention.n_heads, attention.d_value))
        # |x W^T|^2 = x (W^T W) x^T: no vector as wide as the model for each key of each head.
        square = torch.einsum("dhk,dhj->hkj", per_head, per_head)
        norms = torch.einsum("bhsk,hkj,bhsj->bhs", v, square, v).clamp(min=0).sqrt()
        return weights * norms[:, :, None]


def _attentions(network: Transformer, layout: Mapping[str, Layout]) -> dict[str, tuple[Layout, Layout]]:
    """Every attention's queries and keys, by its path."""
    found: dict[str, tuple[Layout, Layout]] = {}
    for name, stack in network.stacks().items():
        for i, block in enumerate(stack.blocks):
            if block.attn is not None:
                found[f"{name}.blocks.{i}.attn"] = layout[name], layout[name]
            if block.cross is not None:
                found[f"{name}.blocks.{i}.cross"] = layout[name], layout["encoder"]
    return found


def _positions(layout: Layout) -> Tensor:
    return layout.positions.expand(layout.grid)


def _share(weights: Tensor, place: Tensor) -> Tensor:
    """h: the mean weight on `place`, b t s, over the queries that have one."""
    on_it = (weights * place[:, None]).sum(-1)
    return _mean(on_it, place.any(-1)[:, None].expand_as(on_it))


def _mean(value: Tensor, counted: Tensor) -> Tensor:
    """b h t -> h: the mean over counted cells; 0 if there are none."""
    return (value * counted).sum((0, 2)) / counted.sum((0, 2)).clamp(min=1)


def _diagonals(weights: Tensor, distance: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """h, h: the diagonal with the most weight, and its share of all."""
    low, high = int(distance.min()), int(distance.max())
    h = weights.shape[1]
    which = (distance - low)[:, None].expand_as(weights).transpose(0, 1).reshape(h, -1)
    sums = weights.new_zeros(h, high - low + 1).scatter_add_(1, which, weights.transpose(0, 1).reshape(h, -1)) / n
    order = torch.tensor(sorted(range(low, high + 1), key=abs), device=weights.device)
    best = sums[:, order - low]
    # So that rounding does not decide a tie.
    top = (best - 1e-9 * torch.arange(len(order), device=weights.device)).argmax(1)
    return order[top], best.gather(1, top[:, None])[:, 0]


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
    device = network.device
    inputs = Tokens.pad([[bos_id, *ids[:-1]] for ids in target]).to(device)
    with inference(network), trace(network) as seen:
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
