"""Gradients of a metric at every reader's stream and at every writer, all readers of a group at once."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.analysis.circuits.branches import Branch
from clearhead.analysis.circuits.parts import Group, Parts
from clearhead.analysis.metrics import Metric
from clearhead.brief import brief
from clearhead.model import Layout, Tokens
from clearhead.model.attention import Attention
from clearhead.model.mode import Evaluating
from clearhead.progress import pieces
from clearhead.trace import Edit, Trace, trace


@dataclass(frozen=True)
class Gradients:
    """The mean gradients over some points between the corrupt and the clean input."""

    __repr__ = brief

    writers: Mapping[str, Tensor]
    """By the path of a writer, as its value: dm / d written."""
    readers: tuple[Tensor, ...]
    """By group, r b t d: dm / d stream through each reader alone. Empty if only writers were asked for."""


def gradients(
    parts: Parts,
    tokens: Mapping[str, Tokens],
    layout: Layout,
    metric: Metric,
    points: list[dict[str, Tensor]],
    *,
    readers: bool,
) -> Gradients:
    """The mean over `points`, each the embeddings by address, of the gradients of the metric's sum over the batch."""
    writers: dict[str, Tensor] = {}
    groups: list[Tensor] = []
    for point in pieces(points):
        edit: dict[str, Edit] = {at: value.clone().requires_grad_() for at, value in point.items()}
        with Evaluating(parts.network), torch.enable_grad(), trace(parts.network, edit) as seen:
            value = metric(parts.network(*tokens.values()), layout).sum()
        paths = list(dict.fromkeys(writer.path for writer in parts.writers(point)))
        inner = list(dict.fromkeys(r.path for group in parts.groups if group.branch for r in group.readers))
        at = list(dict.fromkeys([*paths, *inner])) if readers else paths
        found = _gradient(value, [seen[path] for path in at], keep=readers)
        known = dict(zip(at, found, strict=True))
        writers = {path: known[path] / len(points) + writers.get(path, 0) for path in paths}
        if readers:
            some = [_through(seen, group, known, value) / len(points) for group in pieces(parts.groups)]
            groups = [new + old for new, old in zip(some, groups, strict=True)] if groups else some
    return Gradients(writers, tuple(groups))


def _through(seen: Trace, group: Group, known: Mapping[str, Tensor], value: Tensor) -> Tensor:
    """r b t d: the gradient at a group's stream through each of its readers alone."""
    stream = seen[group.stream]
    if group.branch is None:
        return _gradient(value, [stream], keep=True)[0][None]
    if not isinstance(group.branch.module, Attention):
        return _through_direct(seen, group.branch, stream, known[group.branch.out])
    found: list[Tensor] = []
    for path in dict.fromkeys(reader.path for reader in group.readers):
        whole = known[path]
        n = torch.arange(whole.shape[1])
        alone = whole.new_zeros(len(n), *whole.shape)
        alone[n, :, n] = whole.transpose(0, 1)
        found.append(_gradient(seen[path], [stream], alone, keep=True, batched=True)[0])
    return torch.cat(found)


def _through_direct(seen: Trace, branch: Branch, stream: Tensor, gradient: Tensor) -> Tensor:
    """r b t d: the gradient at a stream through a feed-forward, or through each part into which features split it."""
    whole = gradient if branch.is_cut else _gradient(seen[branch.out], [stream], gradient, keep=True)[0]
    if branch.split is None:
        return whole[None]
    with torch.enable_grad():
        active = branch.split.features.encode(seen[branch.split.features.reads])
    return branch.split.through(active, stream, gradient, whole)


def _gradient(
    of: Tensor, at: list[Tensor], given: Tensor | None = None, *, keep: bool, batched: bool = False
) -> list[Tensor]:
    """The gradients, 0 where nothing depends on a value."""
    found = torch.autograd.grad(
        of, at, given, retain_graph=keep, allow_unused=True, is_grads_batched=batched, materialize_grads=True
    )
    return list(found)
