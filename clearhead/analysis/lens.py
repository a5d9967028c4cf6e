"""The logit lens: the network's answer if it stopped after each of its blocks."""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.analysis.passes import Seen
from clearhead.brief import brief
from clearhead.errors import UserError
from clearhead.model import Layout, Transformer
from clearhead.model.heads import OutputHead
from clearhead.model.mode import Evaluating
from clearhead.progress import pieces

LOGITS = 1 << 24
"""About how many logits are computed at a time."""


@dataclass(frozen=True)
class Lens:
    """The k likeliest answers after the embedding (l = 0) and after each block, likeliest first."""

    __repr__ = brief

    addresses: tuple[str, ...]
    """l: the addresses of the states: `….blocks.0.resid_pre`, then each block's `resid_post`."""
    ids: Tensor
    """l b t k: tokens, or labels."""
    probabilities: Tensor
    """l b t k: probabilities among the whole vocabulary, not among the k."""
    logsumexp: Tensor
    """l b t: probability = exp(logit - logsumexp)."""


def logit_lens(
    network: Transformer, seen: Seen, *, k: int = 5, position: int | None = None, whole: bool = False
) -> Lens:
    """softmax(head(final_norm(resid_l))) for each block l of the last stack   (nostalgebraist 2020)

    Reads a trace of one whole forward pass, edits and all, at all positions or at one. The last layer is the network's
    own answer. A stack without a final norm (post-norm: its blocks end in one) has its states read unchanged. A
    classification head, which pools, reads each position as if it were alone: `pool="first"` then answers at the first.
    With `whole` it reads all positions together, as one.

    Raises UserError for a network that ends in its states or in spans.
    """
    last = list(network.stacks())[-1]
    n = network.last_stack.config.n_layers
    addresses = (f"{last}.blocks.0.resid_pre", *(f"{last}.blocks.{i}.resid_post" for i in range(n)))
    tops: list[tuple[Tensor, ...]] = []
    with torch.no_grad():
        # Some positions at a time, because all logits would take much memory; of one position all layers at once.
        step = max(1, LOGITS // network.head.output.out_features) if isinstance(network.head, OutputHead) else None
        for some in pieces([[one] for one in addresses] if position is None else [addresses]):
            states = torch.stack([seen[at] if position is None else seen[at][:, position, None] for at in some])
            rows = states.flatten(0, 1) if whole else states.flatten(0, 2)[None]
            found = [_top(read(network, one, whole=whole).float(), k) for one in rows.split(step or rows.shape[1], 1)]
            ids, probabilities, totals = (torch.cat(one, 1).flatten(0, 1) for one in zip(*found, strict=True))
            tops.append(tuple(one.unflatten(0, (*states.shape[:2], -1)) for one in (ids, probabilities, totals)))
    ids, probabilities, totals = map(torch.cat, zip(*tops, strict=True))
    return Lens(addresses, ids, probabilities, totals)


def _top(logits: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """b t v -> b t k ids, b t k probabilities, b t logsumexp"""
    total = logits.logsumexp(-1)
    values, ids = logits.topk(min(k, logits.shape[-1]), -1)
    return ids, (values - total[..., None]).exp(), total


def read(network: Transformer, residual: Tensor, *, whole: bool = False) -> Tensor:
    """head(final_norm(residual)): b t d -> b t v, each position independently, or b 1 v. For use outside a trace."""
    norm = network.last_stack.final_norm
    x = residual if norm is None else norm(residual)
    if isinstance(network.config.head, c.NoHead | c.SpanHead | c.VectorHead):
        kind = network.config.head.kind
        raise UserError(f"logit lens: expected a head over tokens or labels, got {kind!r}")
    rows = x if whole else x.flatten(0, 1)[:, None]
    layout = Layout((len(rows), rows.shape[1]), torch.zeros(1, 1, dtype=torch.long, device=x.device))
    with Evaluating(network):
        logits = network.head(rows, layout)
    return logits.view(len(x), -1, logits.shape[-1])
