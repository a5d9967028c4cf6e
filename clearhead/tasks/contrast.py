"""The contrastive loss of vectors, and scores of how well they find each other."""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.model import Tokens
from clearhead.model.layout import Layout
from clearhead.model.sentences import Mode, Pooling, vectors
from clearhead.tasks.label_scores import scored, spearman
from clearhead.tasks.metrics import Score
from clearhead.tasks.task import Evaluation, Sample

N_MISTAKES = 5
ROWS = 256
"""Anchors that are compared with all positives at once."""


def retrieval(anchors: Tensor, positives: Tensor, texts: Sequence[tuple[str, ...]], temperature: float) -> Evaluation:
    """Scores how each anchor finds its positive among all positives: 1 / rank, and whether it ranks first.

    Vectors are n d, of length 1. Equal positives do not count against each other.
    """
    kinds = torch.from_numpy(np.unique([one[1] for one in texts], return_inverse=True)[1])
    ranks, best, nats = torch.empty(len(texts)), torch.empty(len(texts), dtype=torch.long), 0.0
    for rows in torch.arange(len(texts)).split(ROWS):
        cosines, own = anchors[rows] @ positives.mT, (torch.arange(len(rows)), rows)
        is_equal = kinds[rows][:, None] == kinds
        best[rows] = cosines.argmax(1)
        ranks[rows] = 1.0 + ((cosines > cosines[own][:, None]) & ~is_equal).sum(1)
        is_equal[own] = False
        nats += F.cross_entropy((cosines / temperature).masked_fill(is_equal, -torch.inf), rows, reduction="sum").item()
    both = np.ones(len(ranks)), 1 / ranks.numpy()
    mrr = scored("mrr", lambda _, found: float(found.mean()), *both, "0 to 1")
    first = scored("accuracy", lambda _, found: float((found == 1).mean()), *both, "0 to 1")
    worst = [i for i in ranks.argsort(descending=True, stable=True).tolist() if ranks[i] > 1]
    samples = [Sample(texts[i][0], texts[int(best[i])][1], texts[i][1]) for i in worst[:N_MISTAKES]]
    loss = nats / len(ranks)
    return Evaluation((mrr, first, Score("loss", loss)), tuple(samples), loss=loss)


def with_correlation(found: Evaluation, first: Tensor, second: Tensor, scores: np.ndarray) -> Evaluation:
    """The same with Spearman's correlation of the cosines with the scores of pairs, in front."""
    one = scored("spearman", spearman, scores, (first * second).sum(-1).numpy(), "-1 to 1")
    return Evaluation((one, *found.scores), found.samples, loss=found.loss)


def pooled(states: Tensor, tokens: Tokens, pooling: Mode) -> Tensor:
    """b t d (or packed n d) -> b d: one vector of each row's states."""
    layout = Layout.of(tokens)
    return vectors((Pooling((pooling,)),), layout.unpack(states), layout.valid)


def same(groups: Sequence[tuple[str, ...]]) -> Tensor:
    """b c, bool: which candidates, all positives and then all negatives, are no negatives for an anchor.

    Those are its own positive, texts equal to it or to the anchor, and positives of an equal anchor.
    """
    known: dict[str, int] = {}
    ids = np.array([[known.setdefault(text, len(known)) for text in group] for group in groups])
    anchors, positives, candidates = ids[:, 0], ids[:, 1], ids[:, 1:].T.ravel()
    found = (candidates == positives[:, None]) | (candidates == anchors[:, None])
    found[:, : len(ids)] |= anchors[:, None] == anchors
    return torch.from_numpy(found)


def contrast(found: Tensor, masked: Tensor, temperature: float, *, symmetric: bool) -> Tensor:
    """The summed loss of vectors of anchors, positives and negatives: n d. `masked` is as `same` gives it."""
    b = len(masked)
    found = F.normalize(found if found.dtype == torch.float64 else found.float(), dim=-1)
    right = torch.arange(b, device=found.device)
    hidden = masked.clone()
    hidden[right, right] = False
    scores = (found[:b] @ found[b:].mT / temperature).masked_fill(hidden, -torch.inf)
    loss = F.cross_entropy(scores, right, reduction="sum")
    if not symmetric:
        return loss
    return (loss + F.cross_entropy(scores[:, :b].mT, right, reduction="sum")) / 2
