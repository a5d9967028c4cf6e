"""What attribution estimates, measured: the metric with one node or one edge at its corrupt value."""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from clearhead.analysis.circuits.branches import Branch
from clearhead.analysis.circuits.circuits import Circuits
from clearhead.analysis.circuits.parts import Copies, Group
from clearhead.errors import UserError
from clearhead.model.mode import Evaluating
from clearhead.progress import pieces
from clearhead.trace import Edit, nearest, trace

Patched = tuple[str, int | None, Tensor]
"""The address of a value, a head of it or all, and what it becomes, b t d or b t k."""


def patched_nodes(circuits: Circuits, which: Iterable[str] | None = None, *, budget: int = 512) -> dict[str, float]:
    """By writer: what the metric loses if it writes its corrupt value, the mean over the batch.

    `which` names some writers; None measures all. Several go through one pass, of at most about `budget` positions.
    Raises UserError for a writer that is not in the graph.
    """
    known = {str(writer): writer for writer in circuits.writers}
    names = list(known if which is None else which)
    each: list[Patched] = []
    for name in names:
        if name not in known:
            raise UserError(f"{name}: no such writer in this network{nearest(name, known)}")
        writer = known[name]
        each.append((writer.path, writer.head, writer.picked(circuits.seen) - circuits.lost(writer)))
    return dict(zip(names, _losses(circuits, each, budget), strict=True))


def patched_edges(
    circuits: Circuits, which: Iterable[tuple[str, str]] | None = None, *, budget: int = 512
) -> dict[tuple[str, str], float]:
    """By writer and reader: what the metric loses if this reader alone sees the writer's corrupt value.

    `which` names some edges; None measures all. Raises UserError for an edge that is not in the graph.
    """
    wanted = None if which is None else set(which)
    found: dict[tuple[str, str], float] = {}
    names = [str(writer) for writer in circuits.writers]
    with Evaluating(circuits.network), torch.no_grad():
        for group, change in circuits.changes():
            rows, _ = circuits.place(group, len(change))
            pairs = [(w, r) for w in range(len(change)) for r in range(len(group.readers))]
            edges = [(names[rows.start + w], str(group.readers[r])) for w, r in pairs]
            some = [(pair, edge) for pair, edge in zip(pairs, edges, strict=True) if not wanted or edge in wanted]
            if some:
                losses = _group(circuits, group, change, [pair for pair, _ in some], budget)
                found |= zip((edge for _, edge in some), losses, strict=True)
    for writer, reader in wanted or ():
        if (writer, reader) not in found:
            raise UserError(f"{writer} -> {reader}: no such edge; expected a writer and a later reader of its stream")
    return found


def _group(
    circuits: Circuits, group: Group, change: Tensor, pairs: Sequence[tuple[int, int]], budget: int
) -> list[float]:
    """The losses of edges to one group of readers, each a writer's row of `change` and a reader's number."""
    at = sorted({w for w, _ in pairs})
    streams = circuits.seen[group.stream] - change[at]
    if group.branch is None:
        ends = torch.cat([results(circuits, some) for some in streams.split(at_once(circuits, budget))])
        return (circuits.ends[0] - ends.double()).tolist()
    made = [read_again(circuits, group, some) for some in streams.split(at_once(circuits, budget))]
    values = {path: torch.cat([one[path] for one in made]) for path in made[0]}
    each: list[Patched] = []
    for w, r in pairs:
        reader, row = group.readers[r], {path: value[at.index(w)] for path, value in values.items()}
        each.append((reader.path, reader.head, circuits.with_read(reader, row)))
    return _losses(circuits, each, budget)


def read_again(circuits: Circuits, group: Group, streams: Tensor) -> dict[str, Tensor]:
    """n b ...: what a group's readers make of streams, n b t d, by their paths."""
    n = len(streams)
    copies = Copies(circuits.parts, circuits.tokens, n)
    made = copies.made(group, streams.flatten(0, 1), circuits.seen)
    return {path: value.unflatten(0, (n, -1)) for path, value in made.items()}


def other_side(circuits: Circuits, branch: Branch, n: int) -> Tensor | None:
    """The clean stream of the encoder that a cross-attention reads, n times; None for any other branch."""
    crosses = branch.module is branch.block.cross
    return circuits.seen[circuits.parts.ends["encoder"]].repeat(n, 1, 1) if crosses else None


def results(circuits: Circuits, streams: Tensor) -> Tensor:
    """n: the metric for each last stream, n b t d."""
    copies = Copies(circuits.parts, circuits.tokens, len(streams))
    return metric_of(circuits, copies, copies.result(streams.flatten(0, 1)))


def _losses(circuits: Circuits, each: Sequence[Patched], budget: int) -> list[float]:
    """What the metric loses by each patch alone."""
    found: list[float] = []
    several = at_once(circuits, budget)
    for some in pieces(each[i : i + several] for i in range(0, len(each), several)):
        copies = Copies(circuits.parts, circuits.tokens, len(some))
        edit: dict[str, Edit] = {path: _patch(some, path) for path in dict.fromkeys(path for path, _, _ in some)}
        with Evaluating(circuits.network), torch.no_grad(), trace(circuits.network, edit, without=("heads",)):
            result = circuits.network(*copies.tokens.values())
        found += [circuits.ends[0] - float(value) for value in metric_of(circuits, copies, result)]
    return found


def metric_of(circuits: Circuits, copies: Copies, result: Tensor) -> Tensor:
    """n: the metric of each copy."""
    return circuits.metric(result, list(copies.layout.values())[-1]).unflatten(0, (copies.n, -1)).mean(1)


def _patch(each: Sequence[Patched], path: str) -> Callable[[Tensor], Tensor]:
    """Each patch of this address in its own copy of the batch."""

    def patched(value: Tensor) -> Tensor:
        for rows, (at, head, new) in zip(value.chunk(len(each)), each, strict=True):
            if at == path:
                (rows if head is None else rows[:, head]).copy_(new)
        return value

    return patched


def at_once(circuits: Circuits, budget: int) -> int:
    """How many copies of the batch have about `budget` positions."""
    return max(1, budget // sum(b * t for b, t in (layout.grid for layout in circuits.layouts.values())))
