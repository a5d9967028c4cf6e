"""`difference`: what changed between two models of one architecture, over a data set."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from clearhead.analysis.difference import PartChanges, TensorChange, Written, check_same, tensor_changes
from clearhead.analysis.unit_changes import UnitChange, unit_changes
from clearhead.api import Model
from clearhead.capture.answers import Answers, Judged, judged, summed
from clearhead.capture.effects import BATCH_TOKENS, effects_of_parts
from clearhead.capture.passes import batches
from clearhead.capture.texts import AT_ONCE, Encoded, Encoder, Text
from clearhead.config import NoHead, VectorHead
from clearhead.errors import UserError
from clearhead.model.assign import merged
from clearhead.progress import counted
from clearhead.tasks.scores import intervals_of_means

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
    """How a head or neuron changed: norms of what it writes, as shares of the stream it adds to; means over texts."""

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
    """What changed from the first model to the second."""

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
    first: Model, second: Model, texts: Iterable[Text] = (), *, length: int | None = None, top: int = 20
) -> Difference:
    """Ranks tensors, heads and neurons by change of weights; over texts also by what they write, and counts answers.

    The `top` heads and neurons of each list are kept. Texts are as in `capture`. Raises UserError for models of
    different architectures or vocabularies.
    """
    check_comparable(first, second)
    tensors, n_tensors = tensor_changes(first.network, second.network), len(list(first.network.parameters()))
    units = tuple(one for one in unit_changes(first.network, second.network)[:top] if one.score >= STANDS_OUT)
    return over_texts(Difference(tensors, n_tensors, units), first, second, texts, length=length, top=top)


def over_texts(
    start: Difference, first: Model, second: Model, texts: Iterable[Text], *, length: int | None = None, top: int = 20
) -> Difference:
    """The difference of two models' tensors, with that of their heads, neurons and answers over texts."""
    encoder = Encoder(first, tuple(first.config.stacks), length)
    known, every = list[Encoded](), iter(texts)
    given: list[Text] = []
    while some := [*itertools.islice(every, AT_ONCE)]:
        if first.reader.reads_images or first.reader.reads_sounds:
            raise UserError(
                "difference: expected models that read texts, got some of images or sounds; leave texts out"
            )
        known += encoder.encoded(some, len(given))
        given += some
    if not known:
        return start
    changes, found, sizes = PartChanges(first.network, second.network), list[Judged](), list[Written]()
    groups = batches(known, tokens=BATCH_TOKENS)
    for batch in counted(groups, "differences"):
        tokens = encoder.batch([known[i] for i in batch])
        read = changes.read(tokens)
        sizes.append(read.written)
        if (one := judged(first, tokens[-1], read.logits)) is not None:
            found.append(one)
    order = np.argsort(np.concatenate(groups))
    parts = _ranked(changes.sites, sizes, order, top)
    if parts and not isinstance(first.config.head, NoHead | VectorHead):
        parts = _with_effects((first, second), encoder, [[known[i] for i in group] for group in groups], parts)
    answers = summed(first, found, order, [(one, given[one.row]) for one in known], top) if found else None
    heads, neurons = (tuple(part for part in parts if (".ffn." in part.site) == is_ffn) for is_ffn in (False, True))
    return replace(start, n_texts=len(known), heads=heads, neurons=neurons, answers=answers)


def check_comparable(first: Model, second: Model) -> None:
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

    def over_texts(name: str) -> np.ndarray:
        """n m, in the order of the texts."""
        return torch.cat([getattr(one, name) for one in sizes]).double().cpu().numpy()[order]

    own = over_texts("own")
    ranked, is_neuron = np.argsort(-own.mean(0), kind="stable"), np.array([".ffn." in site for site in sites])
    ranked = ranked[own.mean(0)[ranked] > 0.0]
    if not len(ranked):
        return []
    chosen = np.concatenate([ranked[is_neuron[ranked] == kind][:top] for kind in (False, True)])
    bounds = intervals_of_means(own[:, chosen])
    means = np.stack([over_texts(name)[:, chosen].mean(0) for name in ("own", "moved", "total", "before")], -1)
    return [
        PartChange(sites[part], size, (float(low), float(high)), moved, total, before)
        for part, (size, moved, total, before), (low, high) in zip(chosen, means.tolist(), bounds, strict=True)
    ]


def _with_effects(
    models: tuple[Model, Model], encoder: Encoder, groups: Sequence[Sequence[Encoded]], parts: Sequence[PartChange]
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
    first, second = values.mean(1)
    bounds = intervals_of_means(values[1] - values[0])
    return [
        replace(
            part, effect=EffectChange(float(first[i]), float(second[i]), (float(bounds[i, 0]), float(bounds[i, 1])))
        )
        for i, part in enumerate(parts)
    ]
