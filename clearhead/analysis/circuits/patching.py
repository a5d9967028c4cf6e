"""What attribution estimates, measured by running parts again.

The metric with one node or edge at its corrupt value, estimates that are exact through a part, and faithfulness: how
much of the metric a circuit carries alone, with all other connections at corrupt values.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.analysis.circuits.branches import Branch
from clearhead.analysis.circuits.circuits import Circuits
from clearhead.analysis.circuits.graph import Edges, Nodes
from clearhead.analysis.circuits.parts import Copies, Group
from clearhead.analysis.passes import inference, n_positions
from clearhead.errors import UserError
from clearhead.model.attention import Attention
from clearhead.progress import pieces
from clearhead.trace import Edit, nearest, trace

Patched = tuple[str, int | None, Tensor]
"""The address of a value, a head of it or all, and what it becomes, b t d or b t k."""


def patched_nodes(circuits: Circuits, which: Iterable[str] | None = None, *, budget: int = 512) -> dict[str, float]:
    """By writer: the fall of the metric if it writes its corrupt value, averaged over the batch.

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
    """By writer and reader: the fall of the metric if only this reader sees the writer's corrupt value.

    `which` names some edges; None measures all. Raises UserError for an edge that is not in the graph.
    """
    wanted = None if which is None else set(which)
    found: dict[tuple[str, str], float] = {}
    names = [str(writer) for writer in circuits.writers]
    with inference(circuits.network):
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
    """n b ...: the values that a group's readers compute from streams, n b t d, by their paths."""
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
        with inference(circuits.network), trace(circuits.network, edit, without=("heads",)):
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
    return max(1, budget // n_positions(circuits.layouts))


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
    """(clean - corrupt of the output of a reader's part) . dm/d output, exact through the reader itself.

    A softmax or an activation that saturates misleads the gradient before it, not the one behind it (Kramar et al.
    2024, AtP*, does so for queries and keys). Edges to the network's head are exact. About as many copies of each
    attention and FFN run as there are writers before it.
    """
    gradient = circuits.gradients(readers=False).writers
    scores, exists = circuits.empty()
    with inference(circuits.network):
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


SIZES = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""The shares of edges of a faithfulness `curve`."""


@dataclass(frozen=True)
class Point:
    """One point of a faithfulness curve."""

    share: float
    """Of the edges, those with the largest scores."""
    n_edges: int
    metric: float
    faithfulness: float | None
    """(metric - corrupt) / (clean - corrupt): 1 if the circuit does what the network does. None if both are equal."""


def curve(circuits: Circuits, edges: Edges, sizes: Sequence[float] = SIZES) -> Iterator[Point]:
    """The metric with only the top share of edges clean, for each share   (Hanna et al. 2024, 2)"""
    clean, corrupt = circuits.ends
    total = int(edges.exists.sum())
    for share in sizes:
        n = round(share * total)
        metric = patched_but(circuits, edges.kept(n))
        yield Point(share, n, metric, (metric - corrupt) / (clean - corrupt) if clean != corrupt else None)


def patched_but(circuits: Circuits, keep: Tensor) -> float:
    """The metric if every reader sees corrupt values but along the edges of `keep`, w r, the mean over the batch.

    Each reader has a stream of its own: of the kept writers what they write in this run, of the others the corrupt
    value. Readers with the same writers share one.
    """
    with inference(circuits.network):
        run = _Run(circuits, keep)
        for name, some in circuits.parts.branches.items():
            run.start(name)
            for i, branch in enumerate(pieces([*some, None])):
                run.read(circuits.parts.reading(name, i))
                if branch is not None:
                    run.onward(branch)
        assert run.result is not None
        return float(run.result)


class _Run:
    """One pass in which each reader has its own stream."""

    def __init__(self, circuits: Circuits, keep: Tensor) -> None:
        self.circuits, self.keep = circuits, keep
        self.made: dict[str, Tensor] = {}
        """What readers have made of their streams, by path: of an attention b h t k, of any other w b t d by writer."""
        self.result: Tensor | None = None

    def start(self, name: str) -> None:
        """Begins the streams of a stack's readers."""
        circuits = self.circuits
        self.groups: list[tuple[Group, Tensor]] = []
        rows: list[Tensor] = []
        writers = [i for i, one in enumerate(circuits.writers) if one.path.startswith(f"{name}.")]
        for i in range(len(circuits.parts.branches[name]) + 1):
            for group in circuits.parts.reading(name, i):
                columns = circuits.place(group, 0)[1]
                unique, which = self.keep[writers, columns].T.unique(dim=0, return_inverse=True)
                self.groups.append((group, which))
                rows.append(unique)
        self.rows = torch.cat(rows)
        begins = circuits.parts.embedded(name, circuits.seen)
        whole = circuits.seen[f"{name}.embed.sum"]
        lost = circuits.lost_by(begins)
        self.streams = circuits.parts.start(name, whole - _mixed(~self.rows[:, : len(begins)], lost))
        self.done = len(begins)

    def read(self, groups: list[Group]) -> None:
        """Lets the next groups read, and drops their streams."""
        for _ in groups:
            group, which = self.groups.pop(0)
            n = int(which.max()) + 1
            streams, self.streams, self.rows = self.streams[:n], self.streams[n:], self.rows[n:]
            if group.branch is None:
                copies = Copies(self.circuits.parts, self.circuits.tokens, 1)
                self.result = metric_of(self.circuits, copies, copies.result(streams[0]))[0]
                return
            made = read_again(self.circuits, group, streams)
            for path in dict.fromkeys(reader.path for reader in group.readers):
                readers = [(r, which[i]) for i, r in enumerate(group.readers) if r.path == path]
                own = [reader.made({at: value[row] for at, value in made.items()}) for reader, row in readers]
                self.made[path] = torch.stack(own, 0 if readers[0][0].writer else 1)

    def onward(self, branch: Branch) -> None:
        """Adds what a branch writes to every stream."""
        circuits = self.circuits
        if isinstance(branch.module, Attention):
            edit: dict[str, Edit] = {f"{branch.path}.{side}": self.made.pop(f"{branch.path}.{side}") for side in "qkv"}
            memory = other_side(circuits, branch, 1)
            copies = Copies(circuits.parts, circuits.tokens, 1)
            heads = copies.attention(branch, circuits.seen[branch.reads], memory, edit)[branch.heads]
            written = branch.attended(circuits.seen, heads)
        else:
            written = self.made.pop(branch.out)
        base = torch.stack([writer.share(circuits.base) for writer in branch.writers])
        out = circuits.seen[branch.out] - circuits.lost_by(branch.writers).sum(0)
        mask = self.rows[:, self.done : self.done + len(base)]
        self.streams = branch.onward(self.streams, out + _mixed(mask, written - base))
        self.done += len(base)


def _mixed(mask: Tensor, values: Tensor) -> Tensor:
    """n b t d: for each row of the mask, n w, the sum of the chosen values, w b t d."""
    return (mask.to(values) @ values.flatten(1)).unflatten(1, values.shape[1:])
