"""`Circuits`: which parts of a network, and which connections between them, make one number of its result.

The gradients of that number at every reader's stream and at every writer come from one pass for each group of readers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from clearhead.analysis.circuits.branches import N_FEATURES, Branch, Reader, Split, Writer, backward, chosen
from clearhead.analysis.circuits.graph import Edges, Nodes
from clearhead.analysis.circuits.parts import Group, Parts
from clearhead.analysis.features import Features
from clearhead.analysis.metrics import Metric
from clearhead.analysis.passes import Inputs, inference, layouts, seen_by_stack, text_mean, traced
from clearhead.brief import brief
from clearhead.errors import UserError
from clearhead.model import Layout, Tokens, Transformer
from clearhead.model.attention import Attention
from clearhead.model.linear import refuse_rounded
from clearhead.model.mode import Evaluating
from clearhead.progress import cached, pieces
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
        found = backward(value, [seen[path] for path in at])
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
        return backward(value, [stream])[0][None]
    if not isinstance(group.branch.module, Attention):
        return _through_direct(seen, group.branch, stream, known[group.branch.out])
    found: list[Tensor] = []
    for path in dict.fromkeys(reader.path for reader in group.readers):
        whole = known[path]
        n = torch.arange(whole.shape[1])
        alone = whole.new_zeros(len(n), *whole.shape)
        alone[n, :, n] = whole.transpose(0, 1)
        found.append(backward(seen[path], [stream], alone, batched=True)[0])
    return torch.cat(found)


def _through_direct(seen: Trace, branch: Branch, stream: Tensor, gradient: Tensor) -> Tensor:
    """r b t d: the gradient at a stream through a feed-forward, or through each part into which features split it."""
    whole = gradient if branch.is_cut else backward(seen[branch.out], [stream], gradient)[0]
    if branch.split is None:
        return whole[None]
    with torch.enable_grad():
        active = branch.split.features.encode(seen[branch.split.features.reads])
    return branch.split.through(active, stream, gradient, whole)


Baseline = Inputs | Literal["zero", "mean"]
"""A corrupt input for each stack, or what each part's values become instead."""


class Circuits:
    """The graph from writers to readers of residual streams, scored for one metric (Elhage et al. 2021; Nanda 2023).

    A writer is an embedding, positions, a head or an FFN; a reader is the query, key or value of a head, an FFN's input
    or the network's head. The edge u -> r is the direct way from u to r, along the stream with its norms and through
    no other part.

    With features (Marks et al. 2024; Dunefsky et al. 2024), what is written at their site is split into parts that
    add up to it: the `n_features` that matter most, all others together, and the error that they leave. Each is a
    writer, and but for features of what an attention writes a reader too. Features of a residual stream are all of it:
    earlier writers reach later readers through them alone.
    """

    def __init__(
        self,
        network: Transformer,
        clean: Inputs,
        corrupt: Baseline,
        metric: Metric,
        *,
        features: Sequence[Features] = (),
        n_features: int = N_FEATURES,
    ) -> None:
        """`corrupt` has the shape of `clean`; "zero" and "mean" replace values as `analysis.ablation.without` does.

        Weights of 16 bits are copied to float32, because small effects drown in their rounding. Raises UserError for
        texts of different lengths, and for features that have no place in the graph.
        """
        refuse_rounded(network, "circuits")
        if network.dtype in (torch.float16, torch.bfloat16):
            network = deepcopy(network).float()
        self.network, self.metric, self.n_features = network, metric, n_features
        self.whole = Parts(network, [Split(one) for one in features])
        """The parts with the features of each site as one."""
        self.tokens = seen_by_stack(network, clean)
        self.layouts = layouts(network, self.tokens)
        self.layout = list(self.layouts.values())[-1]
        self.seen, clean_result = self._pass(self.tokens)
        if isinstance(corrupt, str):
            if corrupt not in ("zero", "mean"):
                raise UserError(f"corrupt: expected an input, zero or mean, got {corrupt!r}")
            paths = dict.fromkeys(writer.path for writer in self.whole.writers(self.seen))
            known = [*paths, *(split.address for split in self.whole.splits)]
            base = {path: torch.zeros_like(self.seen[path]) for path in known}
            self.base = base if corrupt == "zero" else {path: self._mean(path) for path in known}
            corrupt_result = traced(network, self.tokens, {path: self.base[path] for path in paths})[1]
        else:
            other = seen_by_stack(network, corrupt)
            _check_alike(self.tokens, other)
            self.base, corrupt_result = self._pass(other)
        self.results = clean_result, corrupt_result
        """The network's result on the clean input, and with every writer at its corrupt value."""

    # --- values -----------------------------------------------------------------------------------------------------

    @cached
    def ends(self) -> tuple[float, float]:
        """The metric of the clean input, and with every writer at its corrupt value, the means over the batch."""
        with torch.no_grad():
            clean, corrupt = (float(self.metric(result, self.layout).mean()) for result in self.results)
        return clean, corrupt

    def explaining(self, metric: Metric) -> "Circuits":
        """The same passes with another metric."""
        other = copy(self)
        for name in ("ends", "parts", "writers", "readers"):
            other.__dict__.pop(name, None)
        other.metric = metric
        return other

    @cached
    def parts(self) -> Parts:
        """The parts of the graph, with the features that matter most to the metric."""
        splits = self.whole.splits
        if not splits:
            return self.whole
        found = [self._gradients(self.whole, steps, readers=False).writers for steps in (0, 1)]
        some: list[Split] = []
        for split in splits:
            own, other = self.seen[split.address], self.base[split.address]
            layout = self.layouts[split.writes.split(".", maxsplit=1)[0]]
            active = ((own != 0) | (other != 0))[layout.valid_cells].any(0)
            slopes = [gradient[split.writes] for gradient in found]
            some.append(chosen(split, own - other, active, slopes, self.n_features))
        return Parts(self.network, some)

    @cached
    def writers(self) -> list[Writer]:
        """Every writer, in the order of the rows of `Edges`."""
        return self.parts.writers(self.seen)

    def lost(self, writer: Writer) -> Tensor:
        """b t d: clean - corrupt of a writer's output."""
        return writer.share(self.seen) - writer.share(self.base)

    def lost_by(self, writers: Iterable[Writer]) -> Tensor:
        """w b t d: clean - corrupt of what several writers write."""
        return torch.stack([self.lost(writer) for writer in writers])

    def changes(self) -> Iterator[tuple[Group, Tensor]]:
        """By group, w b t d: by how much its stream falls if one of the stream's writers, each in turn, is corrupt.

        All other writers keep their clean values. Without norms in the stream this is what each writer loses.
        """
        for name, some in self.parts.branches.items():
            whole = self.seen[f"{name}.embed.sum"]
            embed = self.network.stacks()[name].embed
            change = self.lost_by(self.parts.embedded(name, self.seen))
            if embed.norm is not None or embed.project is not None:
                change = self.parts.start(name, whole) - self.parts.start(name, whole - change)
            for i, branch in enumerate(pieces([*some, None])):
                for group in self.parts.reading(name, i):
                    yield group, change
                if branch is not None:
                    written = self.lost_by(branch.writers)
                    change = branch.changes(self.seen[branch.before], self.seen[branch.out], change, written)

    def with_read(self, reader: Reader, made: Mapping[str, Tensor]) -> Tensor:
        """b t d or b t k: the value at a reader's path if only this reader had the stream that gives `made`."""
        value, writer = reader.made(made), reader.writer
        return value if writer is None else self.seen[reader.path] - (writer.share(self.seen) - value)

    # --- attribution ------------------------------------------------------------------------------------------------

    def nodes(self, *, steps: int = 0) -> Nodes:
        """(clean - corrupt) . dm/d written, by writer and position, the mean over the batch.

        At the clean input (attribution patching, Nanda 2023), or with `steps` the mean over so many points between the
        corrupt input and the clean one (integrated gradients, Hanna et al. 2024).
        """
        found = self.gradients(steps=steps, readers=False).writers
        shares = {str(one): (self.lost(one) * one.picked(found)).sum(-1).mean(0).detach() for one in self.writers}
        return Nodes(shares)

    def edges(self, *, steps: int = 0) -> Edges:
        """(clean - corrupt share of the stream) . dm/d stream through one reader, the mean over the batch.

        Edge attribution patching (Syed et al. 2023), with `steps` EAP-IG (Hanna et al. 2024). One matrix product for
        each stream.
        """
        found = self.gradients(steps=steps).readers
        scores, exists = self.empty()
        with inference(self.network):
            for group, change in self.changes():
                w, r = self.place(group, len(change))
                gradient = found[self.parts.groups.index(group)]
                scores[w, r] = (change.flatten(1) @ gradient.flatten(1).T).to(scores) / change.shape[1]
                exists[w, r] = True
        return self.named(scores, exists)

    def terms(self, writer: str, reader: str, *, steps: int = 0) -> tuple[Tensor, Tensor]:
        """b t d, b t d: the change of a reader's stream and the gradient, whose product sums to the edge's score."""
        names = [str(one) for one in self.writers]
        for number, group in enumerate(self.parts.groups):
            for i, one in enumerate(group.readers):
                if str(one) != reader:
                    continue
                gradient = self.gradients(steps=steps).readers[number][i]
                with inference(self.network):
                    change = next(change for one, change in self.changes() if one == group)
                at = names.index(writer) - self.place(group, len(change))[0].start if writer in names else -1
                if not 0 <= at < len(change):
                    raise UserError(f"{writer}: no edge to {reader}; expected a writer before it, in the same stream")
                return change[at], gradient
        raise UserError(f"{reader}: no such reader in this network")

    def gradients(self, *, steps: int = 0, readers: bool = True) -> Gradients:
        """The gradients that `nodes` and `edges` use."""
        return self._gradients(self.parts, steps, readers=readers)

    def _gradients(self, parts: Parts, steps: int, *, readers: bool) -> Gradients:
        shares = [(k + 0.5) / steps for k in range(steps)] if steps else [1.0]
        begins = [writer.path for name in parts.branches for writer in parts.embedded(name, self.seen)]
        points = [
            {at: self.base[at] + share * (self.seen[at] - self.base[at]) for at in begins} for share in shares
        ]  # fmt: skip
        return gradients(parts, self.tokens, self.layout, self.metric, points, readers=readers)

    # --- numbers of nodes and edges -----------------------------------------------------------------------------------

    @cached
    def readers(self) -> list[Reader]:
        """Every reader, in the order of the columns of `Edges`."""
        return [reader for group in self.parts.groups for reader in group.readers]

    def place(self, group: Group, n_writers: int) -> tuple[slice, slice]:
        """The rows and columns of a group's edges, from the first n writers of its stream."""
        begin = self.parts.begins(group)
        first = next(i for i, writer in enumerate(self.writers) if str(writer).startswith(begin))
        column = self.readers.index(group.readers[0])
        return slice(first, first + n_writers), slice(column, column + len(group.readers))

    def named(self, scores: Tensor, exists: Tensor) -> Edges:
        """Scores, w r, with the names of their edges."""
        feeds = tuple(reader.feeds for reader in self.readers)
        return Edges(tuple(map(str, self.writers)), tuple(map(str, self.readers)), feeds, exists, scores)

    def empty(self) -> tuple[Tensor, Tensor]:
        """w r, w r: no scores, and no edges."""
        shape = len(self.writers), len(self.readers)
        return torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.bool)

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _pass(self, tokens: Mapping[str, Tokens]) -> tuple[dict[str, Tensor], Tensor]:
        """The values of a pass that the graph needs, and its result."""
        seen, result = traced(self.network, tokens)
        needed = ("heads", "out", "tokens", "positions", "sum", "resid_pre", "resid_attn", "resid_cross", "resid_post")
        splits = self.whole.splits
        sites = {at for split in splits for at in (split.features.reads, split.writes)}
        kept = {at: seen[at] for at in seen if at.rpartition(".")[2] in needed or at in sites}
        with torch.no_grad():
            return kept | {split.address: split.features.encode(kept[split.features.reads]) for split in splits}, result

    def _mean(self, path: str) -> Tensor:
        """The value's mean over the real positions of the batch, everywhere."""
        value = self.seen[path]
        return text_mean(value, "b h t d" if value.ndim == 4 else "b t d", self.layouts, path)


def _check_alike(clean: Mapping[str, Tokens], corrupt: Mapping[str, Tokens]) -> None:
    """Raises UserError unless both inputs have the same cells."""
    for name, tokens in clean.items():
        other = corrupt[name]
        alike = tokens.ids.shape == other.ids.shape
        if alike and tokens.valid is not None and other.valid is not None:
            alike = bool((tokens.valid == other.valid).all())
        if not alike:
            has, got = tokens.ids.shape[1], other.ids.shape[1]
            raise UserError(
                f"corrupt: expected {has} tokens for the {name}, as of the clean text, got {got}; reword it"
            )
