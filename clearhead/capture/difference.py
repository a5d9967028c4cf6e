"""`difference`: what changed between two models of one architecture, over a data set."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from clearhead import config as c
from clearhead.analysis.difference import (
    PartChanges,
    TensorChange,
    UnitChange,
    Written,
    check_same,
    tensor_changes,
    unit_changes,
)
from clearhead.api.base import ModelBase
from clearhead.brief import brief
from clearhead.capture.effects import BATCH_TOKENS, Mean, effects_of_parts, means
from clearhead.capture.passes import batches
from clearhead.capture.texts import Encoded, Encoder, Text
from clearhead.errors import UserError
from clearhead.model import Tokens
from clearhead.model.assign import merged
from clearhead.progress import counted
from clearhead.tasks import scores
from clearhead.tasks.scores import ScoredRows, mean


@dataclass(frozen=True)
class ScoreChange:
    """A score of both models on the next tokens of the texts."""

    first: float
    second: float
    difference: float
    interval: tuple[float, float]
    """The 95% interval of the difference, over texts."""
    p: float


@dataclass(frozen=True)
class ChangedAnswer:
    """The place of a text where the two models' answers are furthest apart."""

    row: int
    """The number of the text in the data set, from 0."""
    text: Text
    position: int | None
    """The position of the answer; None for an answer to the whole text."""
    before: str
    """What a decoder has read up to the answer."""
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
class BatchAnswers:
    """The answers of one batch, a row for each text."""

    __repr__ = brief

    means: Tensor
    """b 2: the share of answers that changed, and KL."""
    place: Tensor
    """b 3: the position of the changed answer that is furthest apart, and both answers; -1 if none changed."""
    furthest: Tensor
    """b: KL there."""
    sums: Tensor | None
    """b 5: next tokens, and of both models their losses and those that are right."""


def compare_answers(model: ModelBase, last: Tokens, logits: tuple[Tensor | None, Tensor | None]) -> BatchAnswers | None:
    """Compares the answers of a batch; None for a head that does not choose one of several answers."""
    one, other = logits
    head = model.config.head
    if one is None or other is None or not _chooses(head):
        return None
    valid = last.valid_cells
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
    return BatchAnswers(means, place, furthest, sums)


def summarize(
    model: ModelBase, found: Sequence[BatchAnswers], order: np.ndarray, known: Sequence[tuple[Encoded, Text]], top: int
) -> Answers:
    """The answers to all texts; `order` puts the batches' rows in the order of the texts."""
    place, furthest, both = (_column(found, name, order) for name in ("place", "furthest", "means"))
    scores = {} if found[0].sums is None else _scores(_column(found, "sums", order))
    (changed, kl), share = means(both), ScoredRows(mean, (both[:, 0],), is_share=True)
    rows = [i for i in np.argsort(-furthest, kind="stable") if place[i, 0] >= 0]
    texts = [_changed(model, known[i], place[i], float(furthest[i])) for i in rows[:top]]
    return Answers(replace(changed, interval=share.interval), kl, scores, len(rows), tuple(texts))


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
        pair = [ScoredRows(_share, (column, n), is_share=name == "accuracy") for column in (one, other)]
        gap = scores.difference(*pair)
        first, second = (_share(column, n) for column in (one, other))
        found[name] = ScoreChange(first, second, gap.value, gap.interval, gap.p)
    return found


def _share(sums: np.ndarray, n: np.ndarray) -> float:
    return float(sums.sum() / max(n.sum(), 1.0))


def _changed(model: ModelBase, known: tuple[Encoded, Text], place: np.ndarray, kl: float) -> ChangedAnswer:
    one, text = known
    position, *answers = place.astype(int).tolist()
    head = model.config.head
    match head:
        case c.LanguageHead() if model.has_tokenizer:
            names = model.tokenizer.tokens(answers)
        case c.ClassificationHead() | c.TaggingHead() if head.labels:
            names = [head.labels[i] for i in answers]
        case _:
            names = [str(i) for i in answers]
    alone, writes = isinstance(head, c.ClassificationHead | c.SpanHead), model.config.decoder and model.has_tokenizer
    before = model.tokenizer.decode(one.ids[-1][: position + 1]) if writes and not alone else ""
    return ChangedAnswer(one.row, text, None if alone else position, before, names[0], names[1], kl)


def _column(batches: Sequence[BatchAnswers | Written], name: str, order: np.ndarray) -> np.ndarray:
    """A field of every batch, a row for each text in the order of the data."""
    return torch.cat([getattr(one, name) for one in batches]).double().cpu().numpy()[order]


Interval = tuple[float, float]
STANDS_OUT = 6.0
"""Deviations from the other units of a layer from which a change of weights is shown."""


@dataclass(frozen=True)
class EffectChange:
    """KL(whole || without the part), in nats, in both models: means over the texts."""

    first: float
    second: float
    interval: Interval
    """The 95% bootstrap interval of second - first, over texts."""


@dataclass(frozen=True)
class PartChange:
    """The change of a head or neuron: norms of its output, as shares of the stream's norm; means over texts."""

    site: str
    own: float
    """What its own weights change, on the first model's streams."""
    interval: Interval
    """The 95% bootstrap interval of `own`, over texts."""
    moved: float
    """What the changed streams that it reads change."""
    total: float
    """How far what it writes in the second model is from what it writes in the first."""
    before: float
    """What it writes in the first model."""
    effect: EffectChange | None = None
    """None for models without answers."""


@dataclass(frozen=True)
class Difference:
    """The changes from the first model to the second."""

    tensors: list[TensorChange]
    """Those that differ, the largest relative change first."""
    n_tensors: int
    units: tuple[UnitChange, ...] = ()
    """Heads and neurons whose weights changed by STANDS_OUT deviations more than those beside them, largest first."""
    n_texts: int = 0
    heads: tuple[PartChange, ...] = ()
    """Those whose own weights change what they write, the largest change first."""
    neurons: tuple[PartChange, ...] = ()
    answers: Answers | None = None
    """None without texts, and for heads that do not choose among answers."""


def difference(
    first: ModelBase, second: ModelBase, texts: Iterable[Text] = (), *, length: int | None = None, top: int = 20
) -> Difference:
    """Ranks tensors, heads and neurons by change of weights; over texts also by outputs, and counts answers.

    The `top` heads and neurons of each list are kept. Texts are as in `capture`. Raises UserError for models of
    different architectures or vocabularies.
    """
    check_comparable(first, second)
    tensors, n_tensors = tensor_changes(first.network, second.network), len(list(first.network.parameters()))
    units = tuple(one for one in unit_changes(first.network, second.network)[:top] if one.score >= STANDS_OUT)
    return over_texts(Difference(tensors, n_tensors, units), first, second, texts, length=length, top=top)


def over_texts(
    start: Difference,
    first: ModelBase,
    second: ModelBase,
    texts: Iterable[Text],
    *,
    length: int | None = None,
    top: int = 20,
) -> Difference:
    """The difference of two models' tensors, and of their heads, neurons and answers over texts."""
    encoder = Encoder(first, tuple(first.config.stacks), length)
    if (first.reader.reads_images or first.reader.reads_sounds) and any(True for _ in texts):
        raise UserError("difference: expected models that read texts, got some of images or sounds; leave texts out")
    pairs = encoder.known(texts)
    if not pairs:
        return start
    known = [one for one, _ in pairs]
    changes, found, sizes = PartChanges(first.network, second.network), list[BatchAnswers](), list[Written]()
    groups = batches(known, tokens=BATCH_TOKENS)
    for batch in counted(groups, "differences"):
        tokens = encoder.batch([known[i] for i in batch])
        read = changes.read(tokens)
        sizes.append(read.written)
        if (one := compare_answers(first, tokens[-1], read.logits)) is not None:
            found.append(one)
    order = np.argsort(np.concatenate(groups))
    parts = _ranked(changes.sites, sizes, order, top)
    if parts and first.config.has_logits:
        parts = _with_effects((first, second), encoder, [[known[i] for i in group] for group in groups], parts)
    answers = summarize(first, found, order, pairs, top) if found else None
    heads, neurons = (tuple(part for part in parts if (".ffn." in part.site) == is_ffn) for is_ffn in (False, True))
    return replace(start, n_texts=len(known), heads=heads, neurons=neurons, answers=answers)


def check_comparable(first: ModelBase, second: ModelBase) -> None:
    """Raises UserError unless both have one architecture, unrounded weights, and the same tokens or none."""
    check_same(merged(first.network), merged(second.network))
    vocabularies = [
        model.tokenizer.library.get_vocab(with_added_tokens=True) if model.has_tokenizer else None
        for model in (first, second)
    ]
    if None in vocabularies or vocabularies[0] == vocabularies[1]:
        return
    one, other = (f"{len(found or ()):,}" for found in vocabularies)
    raise UserError(f"tokenizer: expected one vocabulary, got two, of {one} and {other} tokens; try two of one run")


def _ranked(sites: Sequence[str], sizes: Sequence[Written], order: np.ndarray, top: int) -> list[PartChange]:
    """The heads and the neurons that changed, the largest own changes first."""
    own = _column(sizes, "own", order)
    ranked, is_neuron = np.argsort(-own.mean(0), kind="stable"), np.array([".ffn." in site for site in sites])
    ranked = ranked[own.mean(0)[ranked] > 0.0]
    if not len(ranked):
        return []
    chosen = np.concatenate([ranked[is_neuron[ranked] == kind][:top] for kind in (False, True)])
    others = [_column(sizes, name, order)[:, chosen].mean(0).tolist() for name in ("moved", "total", "before")]
    return [
        PartChange(sites[part], size.value, size.interval, *rest)
        for part, size, *rest in zip(chosen, means(own[:, chosen]), *others, strict=True)
    ]


def _with_effects(
    models: tuple[ModelBase, ModelBase],
    encoder: Encoder,
    groups: Sequence[Sequence[Encoded]],
    parts: Sequence[PartChange],
) -> list[PartChange]:
    """The parts, with the loss of the answers without each of them in both models."""
    sites = [part.site for part in parts]
    values = np.concatenate(
        [
            torch.stack([effects_of_parts(model, sites, encoder.batch(group)) for model in models])
            .double()
            .cpu()
            .numpy()
            for group in counted(groups, "effects")
        ],
        axis=1,
    )
    changes = zip(*values.mean(1).tolist(), means(values[1] - values[0]), strict=True)
    effects = [EffectChange(first, second, change.interval) for first, second, change in changes]
    return [replace(part, effect=effect) for part, effect in zip(parts, effects, strict=True)]
