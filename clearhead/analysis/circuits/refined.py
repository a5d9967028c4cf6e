"""Closer estimates than one gradient, for about the cost of a pass for each part."""

from collections.abc import Mapping

import torch
from torch import Tensor

from clearhead.analysis.circuits.circuits import Circuits
from clearhead.analysis.circuits.graph import Edges, Nodes
from clearhead.analysis.circuits.parts import Copies, Group, by_head
from clearhead.analysis.circuits.patching import at_once, other_side, read_again, results
from clearhead.model.attention import Attention
from clearhead.model.mode import Evaluating
from clearhead.trace import trace


def refined_nodes(circuits: Circuits, *, steps: int = 3) -> Nodes:
    """(clean - corrupt) . the mean of dm/d written on the way of one attention or FFN alone, by writer and position.

    All heads of an attention go from clean to corrupt together, in so many steps, while all other parts follow from
    what they read. One forward and one backward pass for each attention, each FFN and each step.
    """
    shares: dict[str, Tensor] = {}
    for path in dict.fromkeys(writer.path for writer in circuits.writers):
        clean, base = circuits.seen[path], circuits.base[path]
        total = torch.zeros_like(clean)
        for k in range(steps):
            value = (clean + (k + 0.5) / steps * (base - clean)).requires_grad_()
            with Evaluating(circuits.network), torch.enable_grad(), trace(circuits.network, {path: value}) as seen:
                metric = circuits.metric(circuits.network(*circuits.tokens.values()), circuits.layout).sum()
            total += torch.autograd.grad(metric, seen[path])[0] / steps
        rows = by_head((clean - base) * total).sum(-1).mean(1)
        heads = [writer for writer in circuits.writers if writer.path == path]
        shares |= {str(writer): row for writer, row in zip(heads, rows, strict=True)}
    return Nodes(shares)


def refined_edges(circuits: Circuits, *, budget: int = 512) -> Edges:
    """(clean - corrupt of what a reader's part writes) . dm/d written, exact through the reader itself.

    A softmax or an activation that saturates misleads the gradient before it, not the one behind it (Kramar et al.
    2024, AtP*, does so for queries and keys). Edges to the network's head are exact. About as many copies of each
    attention and FFN run as there are writers before it.
    """
    gradient = circuits.gradients(readers=False).writers
    scores, exists = circuits.empty()
    with Evaluating(circuits.network), torch.no_grad():
        for address, change in circuits.changes():
            for group in circuits.parts.groups:
                if group.stream == address:
                    w, r = circuits.place(group, len(change))
                    streams = (circuits.seen[address] - change).split(at_once(circuits, budget))
                    some = [_lost(circuits, group, each, gradient) for each in streams]
                    scores[w, r], exists[w, r] = torch.cat(some).to(scores), True
    return circuits.named(scores, exists)


def _lost(circuits: Circuits, group: Group, streams: Tensor, gradient: Mapping[str, Tensor]) -> Tensor:
    """n r: what the metric loses, to first order behind the readers, if each of them reads the n streams."""
    branch, n = group.branch, len(streams)
    if branch is None:
        return circuits.ends[0] - results(circuits, streams)[:, None]
    made = read_again(circuits, group, streams)
    clean, slope = circuits.seen[branch.written], gradient[branch.written]
    if not isinstance(branch.module, Attention):
        return ((clean - made[branch.written]) * slope).sum((2, 3)).mean(1)[:, None]
    copies, found = Copies(circuits.parts, circuits.tokens, n), list[Tensor]()
    own = circuits.seen[branch.reads].repeat(n, 1, 1)
    memory = other_side(circuits, branch, n)
    for path, value in made.items():
        heads = copies.attention(branch, own, memory, {path: value.flatten(0, 1)})[branch.written]
        lost = ((clean - heads.unflatten(0, (n, -1))) * slope).sum((3, 4)).mean(1)
        n_readers = sum(reader.path == path for reader in group.readers)
        found.append(lost.unflatten(1, (n_readers, -1)).sum(2))
    return torch.cat(found, 1)
