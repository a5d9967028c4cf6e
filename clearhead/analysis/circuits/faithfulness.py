"""Faithfulness: how much of a metric a circuit carries alone, all other connections at corrupt values."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.analysis.circuits.branches import Branch
from clearhead.analysis.circuits.circuits import Circuits
from clearhead.analysis.circuits.graph import Edges
from clearhead.analysis.circuits.parts import Copies, Group
from clearhead.analysis.circuits.patching import metric_of, other_side, read_again
from clearhead.model.attention import Attention
from clearhead.model.mode import Evaluating
from clearhead.progress import pieces
from clearhead.trace import Edit

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
    with Evaluating(circuits.network), torch.no_grad():
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
