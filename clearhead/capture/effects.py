"""Effects of parts over a data set: each is a mean over texts, with a bootstrap interval."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from clearhead.analysis.ablation import Ablations
from clearhead.analysis.comparison import LOGITS, states
from clearhead.analysis.lens import read
from clearhead.analysis.passes import row_means
from clearhead.api.base import ModelBase
from clearhead.capture.passes import Site, batches, sites_of
from clearhead.capture.texts import Encoder, Text
from clearhead.errors import UserError
from clearhead.model import Tokens
from clearhead.progress import counted
from clearhead.tasks.scores import intervals_of_means
from clearhead.trace import Address

NAMED = {"heads": ("*.blocks.*.attn.z", "*.blocks.*.cross.z"), "neurons": ("*.blocks.*.ffn.post",)}
"""The addresses of the heads and of the neurons of a model."""
LAYERS = "layers"
AXES = {"z": "h", "post": "f"}
"""The axis of the parts of a value, by its name."""
BATCH_TOKENS = 512
"""Of one batch, fewer than for a capture, because an answer has a number for each entry of the vocabulary."""


@dataclass(frozen=True)
class Mean:
    """A mean over texts with its 95% bootstrap interval."""

    value: float
    interval: tuple[float, float]


def means(values: np.ndarray) -> list[Mean]:
    """The mean of each column of values, one row for each text."""
    bounds = intervals_of_means(values).tolist()
    return [Mean(value, (low, high)) for value, (low, high) in zip(values.mean(0).tolist(), bounds, strict=True)]


@dataclass(frozen=True)
class Effect:
    """A mean over texts (the answer's change in nats, or the vector's as 1 - cosine) or over pairs of prompts."""

    site: str
    mean: float
    interval: tuple[float, float]
    """The 95% percentile bootstrap interval of the mean, over texts."""
    n_texts: int


def effects(
    model: ModelBase, texts: Iterable[Text], sites: str | Sequence[str] = "heads", *, length: int | None = None
) -> list[Effect]:
    """KL(plain || without the part) for each head or neuron over a data set, largest mean first.

    `sites` are "heads", "neurons", or addresses: of single parts such as `decoder.blocks.3.ffn.post[f=7]`, or of all
    parts of a value such as `decoder.blocks.*.attn.z`. With "layers", it is KL(plain || answer after this block), the
    answer that the logit lens reads of each block's `resid_post` (nostalgebraist 2020).

    A text counts as the mean over its positions. A model without logits has the shift of its vector, 1 - cosine,
    instead. Texts are as in `capture`. Raises UserError for data without texts.
    """
    encoder = Encoder(model, tuple(model.config.stacks), length)
    known = [one for one, _ in encoder.known(texts)]
    if not known:
        raise UserError("effects: expected texts, got none that are not blank; try other data")
    wanted = last_layers(model) if sites == LAYERS else parts(model, sites)
    values = np.empty((len(known), len(wanted)))
    for batch in counted(batches(known, tokens=BATCH_TOKENS), "effects"):
        tokens = encoder.batch([known[i] for i in batch])
        found = _oflast_layers(model, wanted, tokens) if sites == LAYERS else effects_of_parts(model, wanted, tokens)
        values[batch] = found.double().cpu().numpy()
    result = [
        Effect(site, mean.value, mean.interval, len(known)) for site, mean in zip(wanted, means(values), strict=True)
    ]
    return result if sites == LAYERS else sorted(result, key=lambda one: -one.mean)


def parts(model: ModelBase, sites: str | Sequence[str]) -> list[str]:
    """The address of each head or neuron that is meant. Raises UserError for an address of something else."""
    named = list(NAMED.get(sites, (sites,))) if isinstance(sites, str) else list(sites)
    if isinstance(sites, str) and sites == "heads" and not model.is_encoder_decoder:
        named.pop()
    return [part for site in sites_of(model, named) for part in _parts(site)]


def _parts(site: Site) -> list[str]:
    """The address itself, or the addresses of all its parts."""
    axis = AXES.get(site.path.rpartition(".")[2])
    if axis is None or set(site.index) - {axis}:
        raise UserError(f"{site.address}: expected heads (….attn.z) or neurons (….ffn.post), got another value")
    if axis in site.index:
        return [str(site.address)]
    left = [name for name in site.axes.split() if name not in ("b", site.letter)]
    return [str(Address(site.path, ((axis, i),))) for i in range(site.shape[left.index(axis)])]


def effects_of_parts(model: ModelBase, wanted: Sequence[str], tokens: Sequence[Tokens]) -> Tensor:
    """b m: the effect of each part on each text."""
    ablations = Ablations(model.network, tokens, vectors=model.sentences.vectors)
    found = {site: ablations.divergences(logs) for site, logs in ablations.answers(wanted)}
    return torch.stack([found[site] for site in wanted], -1)


def last_layers(model: ModelBase) -> list[str]:
    """The state after each block of the last stack."""
    if not model.config.answers_by_position:
        raise UserError(
            f"layers: expected a model that answers at each position, got a {model.config.head.kind} head; try heads"
        )
    last = list(model.config.stacks)[-1]
    return [f"{last}.blocks.{i}.resid_post" for i in range(model.config.stacks[last].n_layers)]


def _oflast_layers(model: ModelBase, wanted: Sequence[str], tokens: Sequence[Tokens]) -> Tensor:
    """b m: how far the lens after each block is from the answer of each text."""
    seen, valid = states(model.network, tokens), tokens[-1].valid_cells
    with torch.inference_mode():
        final = seen[LOGITS][valid].float().log_softmax(-1)
        counts = valid.sum(1)
        found: list[Tensor] = []
        for address in wanted:
            logs = read(model.network, seen[address][valid][:, None])[:, 0].float().log_softmax(-1)
            each = (final.exp() * (final - logs)).sum(-1)
            found.append(row_means(each, counts))
    return torch.stack(found, -1)
