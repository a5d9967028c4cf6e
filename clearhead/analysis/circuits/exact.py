"""What attribution estimates, measured: the metric with a node, an edge, or all but a circuit at corrupt values."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.analysis.circuits.circuits import Circuits
from clearhead.analysis.circuits.graph import Edges
from clearhead.analysis.circuits.parts import Branch, Copies, Group, Reader, by_head
from clearhead.errors import UserError
from clearhead.model.attention import Attention
from clearhead.model.mode import Evaluating
from clearhead.trace import Edit, trace

SIZES = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""The shares of edges of which `faithfulness` makes a curve."""
Patched = tuple[str, int | None, Tensor]
"""The address of a value, a head of it or all, and what it becomes, b t d or b t k."""


def patched_nodes(circuits: Circuits, *, budget: int = 512) -> dict[str, float]:
    """By writer: what the metric loses if it writes its corrupt value, the mean over the batch.

    Several go through one pass, of at most about `budget` positions.
    """
    each: list[Patched] = []
    for writer in circuits.writers:
        value = circuits.base[writer.path]
        each.append((writer.path, writer.head, value if writer.head is None else value[:, writer.head]))
    return dict(zip(map(str, circuits.writers), _losses(circuits, each, budget), strict=True))


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
        for address, change in circuits.changes():
            for group in circuits.parts.groups:
                if group.stream != address:
                    continue
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
        return [circuits.ends[0] - float(value) for value in _results(circuits, streams, budget)]
    made = [_made(circuits, group, some) for some in streams.split(_several(circuits, budget))]
    values = {path: torch.cat([one[path] for one in made]) for path in made[0]}
    each: list[Patched] = []
    for w, r in pairs:
        reader, row = group.readers[r], at.index(w)
        value = values[reader.path][row]
        each.append((reader.path, reader.head, value if reader.head is None else value[:, reader.head]))
    return _losses(circuits, each, budget)


def _made(circuits: Circuits, group: Group, streams: Tensor) -> dict[str, Tensor]:
    """n b ...: what a group's readers make of streams, n b t d."""
    n = len(streams)
    copies = Copies(circuits.parts, circuits.tokens, n)
    made = copies.made(group, streams.flatten(0, 1), _other(circuits, group, n))
    return {path: value.unflatten(0, (n, -1)) for path, value in made.items()}


def _other(circuits: Circuits, group: Group, n: int) -> Tensor | None:
    """The clean stream that the other side of a cross-attention reads, n times."""
    branch = group.branch
    if branch is None or branch.module is not branch.block.cross:
        return None
    across = circuits.parts.ends["encoder"] if group.stream == branch.reads else branch.reads
    return circuits.seen[across].repeat(n, 1, 1)


def _results(circuits: Circuits, streams: Tensor, budget: int) -> Iterator[Tensor]:
    """The metric for each last stream, n b t d."""
    for some in streams.split(_several(circuits, budget)):
        copies = Copies(circuits.parts, circuits.tokens, len(some))
        yield from _metric(circuits, copies, copies.result(some.flatten(0, 1)))


def _losses(circuits: Circuits, each: Sequence[Patched], budget: int) -> list[float]:
    """What the metric loses by each patch alone."""
    found: list[float] = []
    several = _several(circuits, budget)
    for some in (each[i : i + several] for i in range(0, len(each), several)):
        copies = Copies(circuits.parts, circuits.tokens, len(some))
        edit: dict[str, Edit] = {path: _patch(some, path) for path in dict.fromkeys(path for path, _, _ in some)}
        with Evaluating(circuits.network), torch.no_grad(), trace(circuits.network, edit, without=("heads",)):
            result = circuits.network(*copies.tokens.values())
        found += [circuits.ends[0] - float(value) for value in _metric(circuits, copies, result)]
    return found


def _metric(circuits: Circuits, copies: Copies, result: Tensor) -> Tensor:
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


def _several(circuits: Circuits, budget: int) -> int:
    return max(1, budget // sum(b * t for b, t in (layout.grid for layout in circuits.layouts.values())))


# --- circuits ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """One point of a faithfulness curve."""

    share: float
    """Of the edges, those with the largest scores."""
    n_edges: int
    metric: float
    faithfulness: float
    """(metric - corrupt) / (clean - corrupt): 1 if the circuit does what the network does."""


def faithfulness(circuits: Circuits, edges: Edges, sizes: Sequence[float] = SIZES) -> Iterator[Point]:
    """The metric with only the top share of edges clean, for each share   (Hanna et al. 2024, 2)"""
    clean, corrupt = circuits.ends
    total = int(edges.exists.sum())
    for share in sizes:
        n = round(share * total)
        metric = patched_but(circuits, edges.kept(n))
        yield Point(share, n, metric, (metric - corrupt) / (clean - corrupt) if clean != corrupt else 1.0)


def patched_but(circuits: Circuits, keep: Tensor) -> float:
    """The metric if every reader sees corrupt values but along the edges of `keep`, w r, the mean over the batch.

    Each reader has a stream of its own: of the kept writers what they write in this run, of the others the corrupt
    value. Readers with the same writers share one.
    """
    with Evaluating(circuits.network), torch.no_grad():
        run = _Run(circuits, keep)
        for name, some in circuits.parts.branches.items():
            run.start(name)
            for i, branch in enumerate(some):
                if not i or branch.before.endswith(".resid_pre"):
                    run.read(branch.before)
                run.onward(branch)
                if not branch.result.endswith(".resid_post") or branch is some[-1]:
                    run.read(branch.result)
        assert run.result is not None
        return float(run.result)


class _Run:
    """One pass in which each reader has its own stream."""

    def __init__(self, circuits: Circuits, keep: Tensor) -> None:
        self.circuits, self.keep = circuits, keep
        self.made: dict[str, Tensor] = {}
        """What readers have made of their streams, by path: of an attention b h t k."""
        self.result: Tensor | None = None

    def start(self, name: str) -> None:
        """Begins the streams of a stack's readers."""
        circuits = self.circuits
        self.groups: list[tuple[Group, Tensor]] = []
        rows: list[Tensor] = []
        writers = [i for i, one in enumerate(circuits.writers) if one.path.startswith(f"{name}.")]
        self.first = writers[0]
        for address in _addresses(circuits, name):
            for group in circuits.parts.groups:
                if group.stream == address:
                    columns = circuits.place(group, 0)[1]
                    unique, which = self.keep[writers, columns].T.unique(dim=0, return_inverse=True)
                    self.groups.append((group, which))
                    rows.append(unique)
        self.rows = torch.cat(rows)
        begins = circuits.parts.embedded(name, circuits.seen)
        whole = circuits.seen[f"{name}.embed.sum"]
        lost = torch.stack([circuits.lost(writer) for writer in begins])
        self.streams = circuits.parts.start(name, whole - _mixed(~self.rows[:, : len(begins)], lost))
        self.done = len(begins)

    def read(self, address: str) -> None:
        """Lets the readers of the stream at an address read, and drops their streams."""
        while self.groups and self.groups[0][0].stream == address:
            group, which = self.groups.pop(0)
            n = int(which.max()) + 1
            streams, self.streams, self.rows = self.streams[:n], self.streams[n:], self.rows[n:]
            if group.branch is None:
                copies = Copies(self.circuits.parts, self.circuits.tokens, 1)
                self.result = _metric(self.circuits, copies, copies.result(streams[0]))[0]
                return
            made = _made(self.circuits, group, streams)
            for path, value in made.items():
                readers = [(r, which[i]) for i, r in enumerate(group.readers) if r.path == path]
                heads = [value[row] if r.head is None else value[row][:, r.head] for r, row in readers]
                self.made[path] = heads[0] if readers[0][0].head is None else torch.stack(heads, 1)

    def onward(self, branch: Branch) -> None:
        """Adds what a branch writes to every stream."""
        circuits = self.circuits
        if isinstance(branch.module, Attention):
            edit: dict[str, Edit] = {f"{branch.path}.{side}": self.made.pop(f"{branch.path}.{side}") for side in "qkv"}
            crosses = branch.module is branch.block.cross
            memory = circuits.seen[circuits.parts.ends["encoder"]] if crosses else None
            copies = Copies(circuits.parts, circuits.tokens, 1)
            written = copies.attention(branch, circuits.seen[branch.reads], memory, edit)[branch.written]
        else:
            written = self.made.pop(branch.written)
        clean, base = circuits.seen[branch.written], circuits.base[branch.written]
        out = circuits.seen[f"{branch.path}.out"] - by_head(clean - base).sum(0)
        heads = by_head(written - base)
        mask = self.rows[:, self.done : self.done + len(heads)]
        self.streams = branch.onward(self.streams, out + _mixed(mask, heads))
        self.done += len(heads)


def _addresses(circuits: Circuits, name: str) -> list[str]:
    """The addresses of a stack's streams, in order."""
    some = circuits.parts.branches[name]
    return list(dict.fromkeys(at for branch in some for at in (branch.before, branch.result)))


def _mixed(mask: Tensor, values: Tensor) -> Tensor:
    """n b t d: for each row of the mask, n w, the sum of the chosen values, w b t d."""
    return (mask.to(values) @ values.flatten(1)).unflatten(1, values.shape[1:])
