"""Closer estimates than one gradient, by running some parts again."""

from collections.abc import Mapping

import torch
from torch import Tensor

from clearhead.analysis.circuits.circuits import Circuits
from clearhead.analysis.circuits.graph import Edges, Nodes
from clearhead.analysis.circuits.parts import Copies, Group
from clearhead.analysis.circuits.patching import at_once, other_side, patched_nodes, read_again, results
from clearhead.errors import UserError
from clearhead.model.attention import Attention
from clearhead.model.mode import Evaluating

EXACT = 1 / 3
"""Share of the nodes that `refined_nodes` patches for real."""


def refined_nodes(circuits: Circuits, *, exact: float = EXACT, budget: int = 512) -> Nodes:
    """(clean - corrupt) . dm/d written at the clean text, and exact effects where that estimate is least certain.

    The gradient halfway to the corrupt text gives a second estimate. Where the two are furthest apart, the network
    between a writer and the metric is not linear, and the share `exact` of the writers with the largest gaps is patched
    for real: `Nodes.exact` has them. Two forward and backward passes, and one forward pass for each exact effect.
    Raises UserError unless `exact` is 0 to 1.
    """
    if not 0 <= exact <= 1:
        raise UserError(f"exact: expected a share from 0 to 1, got {exact}")
    here, halfway = circuits.nodes(), circuits.nodes(steps=1).scores
    gaps = {at: abs(score - halfway[at]) for at, score in here.scores.items()}
    which = sorted(gaps, key=lambda at: -gaps[at])[: round(exact * len(gaps))]
    return Nodes(here.positions, patched_nodes(circuits, which, budget=budget))


def refined_edges(circuits: Circuits, *, budget: int = 512) -> Edges:
    """(clean - corrupt of what a reader's part writes) . dm/d written, exact through the reader itself.

    A softmax or an activation that saturates misleads the gradient before it, not the one behind it (Kramar et al.
    2024, AtP*, does so for queries and keys). Edges to the network's head are exact. About as many copies of each
    attention and FFN run as there are writers before it.
    """
    gradient = circuits.gradients(readers=False).writers
    scores, exists = circuits.empty()
    with Evaluating(circuits.network), torch.no_grad():
        for group, change in circuits.changes():
            w, r = circuits.place(group, len(change))
            streams = (circuits.seen[group.stream] - change).split(at_once(circuits, budget))
            some = [_lost(circuits, group, each, gradient) for each in streams]
            scores[w, r], exists[w, r] = torch.cat(some).to(scores), True
    return circuits.named(scores, exists)


def _lost(circuits: Circuits, group: Group, streams: Tensor, gradient: Mapping[str, Tensor]) -> Tensor:
    """n r: what the metric loses, to first order behind the readers, if each of them reads the n streams."""
    branch, n = group.branch, len(streams)
    if branch is None:
        return circuits.ends[0] - results(circuits, streams)[:, None]
    made = read_again(circuits, group, streams)
    if not isinstance(branch.module, Attention):
        lost = [(one.share(circuits.seen) - one.share(made)) * one.picked(gradient) for one in branch.writers]
        return torch.stack([one.sum((2, 3)).mean(1) for one in lost], 1)
    clean = circuits.seen[branch.heads]
    slope = gradient[branch.out][:, None] if branch.split else gradient[branch.heads]
    copies, found = Copies(circuits.parts, circuits.tokens, n), list[Tensor]()
    own = circuits.seen[branch.reads].repeat(n, 1, 1)
    memory = other_side(circuits, branch, n)
    for path, value in made.items():
        heads = copies.attention(branch, own, memory, {path: value.flatten(0, 1)})[branch.heads]
        lost = ((clean - heads.unflatten(0, (n, -1))) * slope).sum((3, 4)).mean(1)
        n_readers = sum(reader.path == path for reader in group.readers)
        found.append(lost.unflatten(1, (n_readers, -1)).sum(2))
    return torch.cat(found, 1)
