"""Answers of two models to the same texts: which changed, and whether the second model is better than chance."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from clearhead import config as c
from clearhead.api import Model
from clearhead.brief import brief
from clearhead.capture.texts import Encoded, Text, valid_cells
from clearhead.model import Tokens
from clearhead.tasks.scores import ScoredRows, difference, intervals_of_means


@dataclass(frozen=True)
class Mean:
    """A mean over texts with its 95% bootstrap interval."""

    value: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class ScoreChange:
    """A score of both models on the next tokens of the texts."""

    first: float
    second: float
    difference: float
    interval: tuple[float, float]
    """Where 95% of paired bootstrap resamples of the texts have the difference."""
    p: float


@dataclass(frozen=True)
class ChangedAnswer:
    """The place of a text where the two models' answers are furthest apart."""

    row: int
    """The number of the text in the data set, from 0."""
    text: Text
    position: int | None
    """The position of the answer; None for an answer to the whole text."""
    first: str
    """A token or label; a position, for the start or the end of an answer in the text."""
    second: str
    kl: float


@dataclass(frozen=True)
class Answers:
    """The likeliest answers of both models. A text counts as the mean over its positions."""

    changed: Mean
    """The share of answers that changed."""
    kl: Mean
    """KL(first || second), in nats."""
    scores: dict[str, ScoreChange]
    """`loss`, in nats a token, and `accuracy` of the next tokens, for a decoder; else none."""
    n_changed_texts: int
    texts: tuple[ChangedAnswer, ...]
    """For each text with a changed answer, the place where the models differ most; the largest difference first."""


@dataclass(frozen=True)
class Judged:
    """What one batch says, a row for each text."""

    __repr__ = brief

    means: np.ndarray
    """b 2: the share of answers that changed, and KL."""
    place: np.ndarray
    """b 3: the position of the changed answer that is furthest apart, and both answers; -1 if none changed."""
    furthest: np.ndarray
    """b: KL there."""
    sums: np.ndarray | None
    """b 5: next tokens, and of both models their losses and those that are right."""


def judged(model: Model, last: Tokens, logits: tuple[Tensor | None, Tensor | None]) -> Judged | None:
    """Compares the answers of a batch; None for a head that does not choose one of several answers."""
    one, other = logits
    head = model.config.head
    if one is None or other is None or not _chooses(head):
        return None
    valid = valid_cells(last)
    if isinstance(head, c.ClassificationHead):
        one, other, valid = one[:, None], other[:, None], valid[:, :0].new_ones(len(valid), 1)
    elif isinstance(head, c.SpanHead):
        one, other = (x.mT.masked_fill(~valid[:, None], -1e9) for x in (one, other))
        valid = valid[:, :0].new_ones(len(valid), 2)
    a, b = (x.float().log_softmax(-1) for x in (one, other))
    kl = (a.exp() * (a - b)).sum(-1).clamp_min(0.0).masked_fill(~valid, 0.0)
    ours, theirs = a.argmax(-1), b.argmax(-1)
    changed = (ours != theirs) & valid
    means = torch.stack([x.double().sum(1) / valid.sum(1).clamp_min(1) for x in (changed, kl)], -1)
    furthest, at = kl.masked_fill(~changed, -1.0).max(1)
    place = torch.stack([at, *(x.gather(1, at[:, None])[:, 0] for x in (ours, theirs))], -1)
    place = place.masked_fill(~changed.any(1)[:, None], -1)
    sums = _next_tokens(last, valid, (a, b)) if model.config.is_causal else None
    return Judged(_array(means), place.cpu().numpy(), _array(furthest), None if sums is None else _array(sums))


def summed(
    model: Model, found: Sequence[Judged], order: np.ndarray, known: Sequence[tuple[Encoded, Text]], top: int
) -> Answers:
    """The answers to all texts; `order` puts the batches' rows in the order of the texts."""
    means = np.concatenate([one.means for one in found])[order]
    place = np.concatenate([one.place for one in found])[order]
    furthest = np.concatenate([one.furthest for one in found])[order]
    sums = [one.sums for one in found if one.sums is not None]
    scores = _scores(np.concatenate(sums)[order]) if sums else {}
    bounds = intervals_of_means(means)
    changed, kl = (
        Mean(float(value), (float(low), float(high))) for value, (low, high) in zip(means.mean(0), bounds, strict=True)
    )
    rows = [i for i in np.argsort(-furthest, kind="stable") if place[i, 0] >= 0]
    texts = [_changed(model, known[i], place[i], float(furthest[i])) for i in rows[:top]]
    return Answers(changed, kl, scores, len(rows), tuple(texts))


def _chooses(head: c.Head) -> bool:
    if isinstance(head, c.ClassificationHead):
        return head.n_labels > 1 and head.problem_type in (None, "single_label_classification")
    return isinstance(head, c.LanguageHead | c.TaggingHead | c.SpanHead)


def _next_tokens(last: Tokens, valid: Tensor, logs: tuple[Tensor, Tensor]) -> Tensor:
    """b 5: counts, losses and hits of the next tokens."""
    both, target = valid[:, 1:] & valid[:, :-1], last.ids[:, 1:]
    losses = [-log[:, :-1].gather(-1, target[..., None])[..., 0] * both for log in logs]
    hits = [(log[:, :-1].argmax(-1) == target) & both for log in logs]
    return torch.stack([x.double().sum(1) for x in (both, *losses, *hits)], -1)


def _scores(sums: np.ndarray) -> dict[str, ScoreChange]:
    n, *columns = sums.T
    if not n.sum():
        return {}
    found: dict[str, ScoreChange] = {}
    for name, one, other in (("loss", *columns[:2]), ("accuracy", *columns[2:])):
        pair = [ScoredRows(_share, (column, n)) for column in (one, other)]
        gap = difference(*pair)
        first, second = (_share(column, n) for column in (one, other))
        found[name] = ScoreChange(first, second, gap.value, gap.interval, gap.p)
    return found


def _share(sums: np.ndarray, n: np.ndarray) -> float:
    return float(sums.sum() / max(n.sum(), 1.0))


def _changed(model: Model, known: tuple[Encoded, Text], place: np.ndarray, kl: float) -> ChangedAnswer:
    one, text = known
    position, *answers = place.tolist()
    head = model.config.head
    match head:
        case c.LanguageHead() if model.has_tokenizer:
            names = model.tokenizer.tokens(answers)
        case c.ClassificationHead() | c.TaggingHead() if head.labels:
            names = [head.labels[i] for i in answers]
        case _:
            names = [str(i) for i in answers]
    alone = isinstance(head, c.ClassificationHead | c.SpanHead)
    return ChangedAnswer(one.row, text, None if alone else position, names[0], names[1], kl)


def _array(x: Tensor) -> np.ndarray:
    return x.double().cpu().numpy()
