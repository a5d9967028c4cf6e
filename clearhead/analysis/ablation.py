"""Ablation: the output of a network without some of its parts, its heads and neurons, and the effect of each part."""

import itertools
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.analysis import passes
from clearhead.analysis.comparison import modules, states
from clearhead.analysis.metrics import Cosine, Metric, Vectors, mean_states
from clearhead.analysis.passes import (
    SEEN,
    Following,
    Given,
    Inputs,
    Seen,
    by_stack,
    can_share,
    in_order,
    inference,
    is_everywhere,
    last_states,
    layouts,
    n_positions,
    next_size,
    part_of,
    repeated,
    row_means,
    seen_by_stack,
    shared,
    text_mean,
    traced,
)
from clearhead.errors import UserError
from clearhead.model import Layout, Transformer
from clearhead.model.attention_bias import AttentionBias
from clearhead.model.block import Memory
from clearhead.model.cache import BlockCache
from clearhead.model.linear import refuse_rounded
from clearhead.progress import pieces
from clearhead.trace import Address, ByRow, Edit, edited, recording, tell_padding, untraced, zero


@dataclass(frozen=True)
class Place:
    """The heads of one attention, or the neurons of one feed-forward: the columns of its output projection."""

    path: str
    stack: str
    block: int
    stream: str
    """The address of the stream to which it adds."""
    n: int
    """The number of its heads or neurons."""

    @property
    def is_ffn(self) -> bool:
        """True if the parts of this place are neurons."""
        return self.path.endswith("ffn")

    @property
    def axis(self) -> str:
        """The axis of its parts."""
        return "f" if self.is_ffn else "h"

    @property
    def value(self) -> str:
        """The address of what its parts compute."""
        return f"{self.path}.post" if self.is_ffn else f"{self.path}.z"

    @property
    def projection(self) -> str:
        """The path of the map with which it writes."""
        return f"{self.path}.down" if self.is_ffn else f"{self.path}.out"

    @property
    def sites(self) -> list[str]:
        """The address of each part: `….attn.z[h=2]`, `….ffn.post[f=7]`."""
        return [f"{self.value}[{self.axis}={i}]" for i in range(self.n)]


def places(network: Transformer) -> list[Place]:
    """Every attention and every feed-forward without experts, in order."""
    found: list[Place] = []
    for name, stack in network.stacks().items():
        heads, units = stack.config.n_heads, stack.config.d_ff
        for i in range(stack.config.n_layers):
            at = f"{name}.blocks.{i}"
            if stack.config.has_attention(i):
                found.append(Place(f"{at}.attn", name, i, f"{at}.resid_pre", heads))
            if stack.cross:
                found.append(Place(f"{at}.cross", name, i, f"{at}.resid_attn", heads))
            if stack.config.has_ffn(i) and not stack.config.has_experts(i):
                found.append(Place(f"{at}.ffn", name, i, f"{at}.resid_{'cross' if stack.cross else 'attn'}", units))
    return found


def check_parts(network: Transformer, sites: Iterable[str]) -> None:
    """Raises UserError for the address of anything but a head or a neuron."""
    known = {place.value: place for place in places(network)}
    for site in sites:
        address = Address.parse(site)
        place, index = known.get(address.path), dict(address.index)
        if place is None or {*index} != {place.axis} or not -place.n <= index[place.axis] < place.n:
            expected = "expected a head or neuron, such as decoder.blocks.0.attn.z[h=2] or ….ffn.post[f=7]"
            raise UserError(f"{site}: {expected}; a block with experts has only heads")


How = Literal["zero", "mean"]
Keys = tuple[Tensor, Tensor]
"""Keys and values of one attention, b h s k each."""
ROWS = 128
"""Distributions that are computed at a time."""
LEAST = 7
"""The least positions of a pass that has more than one: as long as fewer, because the weights are read."""


def without(network: Transformer, inputs: Inputs, sites: Iterable[str], *, how: How = "zero") -> Tensor:
    """Logits, b t v (b v if the head pools), with the values at these addresses removed.

    `zero` puts 0 there. `mean` puts the value's mean over the real positions of the batch, which keeps what is common
    to all texts (Wang et al. 2022, mean ablation).
    """
    tokens = by_stack(network, inputs)
    edit: dict[str, Edit] = dict.fromkeys(sites, zero)
    if how == "mean":
        (seen, _), grid = traced(network, tokens), layouts(network, tokens)
        for site in edit:
            where = Address.parse(site)
            axes = seen.axes[where.path]
            edit[site] = where.of(text_mean(seen[where.path], axes, grid, where.path), axes)
    return traced(network, tokens, edit)[1]


def effects(
    network: Transformer,
    inputs: Inputs,
    sites: Iterable[str],
    *,
    position: int | None = None,
    metric: Metric | None = None,
    vectors: Vectors = mean_states,
    budget: int = 1024,
) -> dict[str, float]:
    """KL(plain || without that part), in nats, for each head (`….attn.z[h=2]`) or neuron (`….ffn.post[f=7]`).

    The mean over the real positions of the last stack, or over the batch at one position; a head that pools has one
    distribution for each row, a span head two: for the answer's start and end. A network without logits has the shift
    of its vector, 1 - cosine, instead: `vectors` makes one of its states. With a `metric`, such as the logit of a
    label, the effect is metric(plain) - metric(without), the mean over the batch.

    Several parts of one block go through one forward pass, of at most about `budget` positions, which starts at that
    block.
    """
    ablations = Ablations(network, inputs, position=position, metric=metric, vectors=vectors)
    return ablations.effects(sites, budget=budget)


def unit(network: Transformer) -> str:
    """The unit in which effects are measured if no metric is given."""
    return "nats" if network.config.has_logits else "1 - cosine"


class Ablations:
    """Compares the output of a network without some parts with its whole output, which is computed once."""

    def __init__(
        self,
        network: Transformer,
        inputs: Inputs,
        *,
        position: int | None = None,
        edit: Mapping[str, Edit] | None = None,
        metric: Metric | None = None,
        vectors: Vectors = mean_states,
        seen: Seen | None = None,
    ) -> None:
        """Arguments are as in `effects`. With `edit`, parts are removed from the edited network, whose values are
        `seen` if they were made already.
        """
        refuse_rounded(network, "effects")
        self._network, self._position, self._edit = network, position, dict(edit or {})
        self._tokens = seen_by_stack(network, inputs)
        self._last = list(self._tokens)[-1]
        layout = layouts(network, self._tokens)
        self._length = n_positions(layout)
        self.metric = metric
        """What is compared; None for the divergence of the answers."""
        self._base = {Address.parse(at): one for at, one in self._edit.items()}
        self._past: dict[int, Keys] = {}
        self._can_share = False
        last = self._tokens[self._last]
        self._rows, is_whole = len(last.ids), last.valid is None and last.groups is None
        is_cut = is_whole and network.decoder is not None and network.config.predicts_tokens
        is_cut &= all(is_everywhere(at, one) and not at.path.startswith("head.") for at, one in self._base.items())
        self.end = position % layout[self._last].grid[1] + 1 if is_cut and position is not None else None
        """The number of positions of a decoder that reach the answer, if only some are needed."""
        with inference(network):
            if seen is None or any(at.path.endswith(".blocks.0.resid_pre") for at in self._base):
                with edited(network, self._edit, explicit=_hidden(self._base)):
                    seen = states(network, list(self._tokens.values()))
            self._plain = {at: seen[at] for at in modules(network)}
            if metric is None and unit(network) != "nats":
                made = network.head(self._plain[last_states(network, self._last)], layout[self._last])
                self.metric = Cosine(vectors(made, layout[self._last]), vectors)
            self.expected = self._edited([{}], [("head", 0)], None)
            """n v: the log probabilities without any removal; or the metric, b."""

    def effects(self, sites: Iterable[str], *, budget: int = 1024) -> dict[str, float]:
        """The effects as the function `effects` computes them."""
        found = dict.fromkeys(sites, 0.0)
        return found | {site: self.divergence(logs) for site, logs in self.answers(found, budget=budget)}

    def answers(self, sites: Iterable[str], *, budget: int = 1024) -> Iterator[tuple[str, Tensor]]:
        """The output without each part, block by block: n v, log probabilities; or the metric, b."""
        parts = [*sites]
        check_parts(self._network, parts)
        for i, logs in self.edited([{site: zero} for site in parts], budget=budget):
            yield parts[i], logs

    def edited(self, edits: Sequence[Mapping[str, Edit]], *, budget: int = 1024) -> Iterator[tuple[int, Tensor]]:
        """The number of each set of edits, and the output with it: n v, log probabilities; or the metric, b.

        Sets that begin in the same block are rows of one pass, which begins there; the first block comes first. Raises
        UserError for an edit of no value.
        """
        network = self._network
        each = [{Address.parse(at): edit for at, edit in some.items()} for some in edits]
        firsts = [
            min((part_of(network, at.path) for at in some), key=partial(in_order, network), default=("head", 0))
            for some in each
        ]
        cells = [self._cells(some, first) for some, first in zip(each, firsts, strict=True)]

        def kind(i: int) -> tuple[int, bool, tuple[int, int]]:
            return in_order(network, firsts[i])[0], _hidden(each[i]), cells[i] or (0, 0)

        order = sorted(range(len(each)), key=lambda i: (kind(i), firsts[i][1]))
        for _, group in itertools.groupby(order, key=kind):
            several = list(group)
            reached = cells[several[0]]
            length = self._length if reached is None else self._rows * (reached[1] - reached[0])
            at_once = max(1, budget // length)
            for start in pieces(range(0, len(several), at_once)):
                some = several[start : start + at_once]
                with inference(network):
                    found = self._edited([each[i] for i in some], [firsts[i] for i in some], reached)
                yield from zip(some, found.chunk(len(some)), strict=True)

    def divergence(self, logs: Tensor) -> float:
        """KL(plain || these), in nats, the mean over the rows; or how much smaller these are than the plain metric."""
        if self.metric is not None:
            return float((self.expected - logs).mean())
        return max(0.0, float(self._each(logs).mean()))

    def _each(self, logs: Tensor) -> Tensor:
        """n: KL(plain || these) of each row, in nats."""
        return (self.expected.exp() * (self.expected - logs)).sum(-1)

    def divergences(self, logs: Tensor) -> Tensor:
        """b: KL(plain || these), in nats, the mean over the rows of each text of the batch; or as `divergence`."""
        if self.metric is not None:
            return self.expected - logs
        each = self._each(logs)
        valid = layouts(self._network, self._tokens)[self._last].valid_cells
        if self._network.config.answers_by_position:
            counts = _counted(valid, self._position).sum(1)
        else:
            counts = torch.full((len(valid),), len(each) // len(valid), device=each.device)
        return row_means(each, counts)

    def _edited(
        self, rows: Sequence[Mapping[Address, Edit]], firsts: Sequence[passes.Part], cells: tuple[int, int] | None
    ) -> Tensor:
        """What `answers` compares, with the edits of each row in its own copy of the batch.

        A row joins the pass at its first part or before; their order is that of the parts. `cells` are the first
        position that is computed, and the end.
        """
        network, edit = self._network, dict[str, Edit]()
        key = partial(in_order, network)
        base = {at: one for at, one in self._base.items() if key(part_of(network, at.path)) >= key(firsts[0])}
        for path in {at.path: None for row in [base, *rows] for at in row}:
            there = rows[: self._joined(firsts, part_of(network, path))]
            each = [[one for one in (*base.items(), *row.items()) if one[0].path == path] for row in there]
            edit[path] = ByRow([[(_moved(at, cells), one) for at, one in own] for own in each])
        explicit = _hidden([at for row in [base, *rows] for at in row])
        self._can_share = self._rows == 1 and not explicit and not any(path.endswith((".k", ".v")) for path in edit)
        with edited(network, edit, explicit=explicit):
            x, layout = self._run(firsts, cells, {part_of(network, path) for path in edit})
            return self._read(x, layout, whole=any(path.startswith("head.") for path in edit))

    def _run(
        self, firsts: Sequence[passes.Part], cells: tuple[int, int] | None, parts: Collection[passes.Part]
    ) -> tuple[Tensor, Layout]:
        """The last states of copies that join at these parts of one stack, with edits in some parts."""
        network, name, n = self._network, firsts[0][0], 0
        stack = network.stacks().get(name)
        x, layout, memory = torch.empty(0), layouts(network, self._tokens)[self._last], None
        if stack is None:
            return self._plain[self._before(firsts[0])].repeat(len(firsts), 1, 1), self._copies(self._last, len(firsts))
        for i in pieces(range(firsts[0][1], len(stack.blocks) + 1)):
            if joining := self._joined(firsts, (name, i)) - n:
                n += joining
                layout = self._copies(name, n, cells)
                joined = self._plain[self._before((name, i))][:, slice(*cells or (None,))].repeat(joining, 1, 1)
                if i < 0:
                    tokens, own = repeated(self._tokens[name], joining), self._copies(name, joining)
                    joined = stack.embed(tokens, own, stack.positions.embedding(own.positions))
                x = torch.cat([x, joined]) if len(x) else joined
                if stack.cross:
                    memory = self._plain[last_states(network, "encoder")].repeat(n, 1, 1), self._copies("encoder", n)
            past = None
            is_last = i == len(stack.blocks) - 1 and (name, i) not in parts
            if cells is not None and is_last and layout.grid[1] > 1:  # Only the answer's position reads what it makes.
                past = self._keys(name, i, x, layout)
                x, layout = x[:, -1:], self._copies(name, n, (cells[1] - 1, cells[1]))
            if 0 <= i < len(stack.blocks):
                x = self._block(name, i, x, layout, memory, past)
        x = x if stack.final_norm is None else stack.final_norm(x)
        if name == "encoder" and network.decoder is not None:
            return network.decoder(repeated(self._tokens["decoder"], n), (x, layout))
        return x, layout

    def _joined(self, firsts: Sequence[passes.Part], part: passes.Part) -> int:
        """How many rows a part has: those that joined, and some that will, because each size of a product is new."""
        key = partial(in_order, self._network)
        return min(next_size(bisect_right(firsts, key(part), key=key)), len(firsts))

    def _copies(self, name: str, n: int, cells: tuple[int, int] | None = None) -> Layout:
        """The layout of so many copies of the batch, or of some cells of one text."""
        if cells is None:
            return layouts(self._network, {k: repeated(batch, n) for k, batch in self._tokens.items()})[name]
        positions = layouts(self._network, self._tokens)[name].positions[:, slice(*cells)]
        positions = positions.repeat(n if len(positions) > 1 else 1, 1)
        return Layout((n * self._rows, cells[1] - cells[0]), positions, start=cells[0])

    def _block(
        self, name: str, i: int, x: Tensor, layout: Layout, memory: Memory | None, past: Keys | None = None
    ) -> Tensor:
        """The result of a block; `past` are the keys and values of all positions, by default earlier ones are plain.

        Copies share the plain keys and values where those are longer than all that is new.
        """
        stack, keys, cache, n = self._network.stacks()[name], layout, None, len(x) // self._rows
        if layout.start:
            keys = self._copies(name, n, (0, layout.start + layout.grid[1]))
        attn_bias = stack.attn_bias(layout, keys, kind=stack.kinds[i], dtype=x.dtype)
        if layout.start:
            t, s = layout.grid[1], keys.grid[1]
            k, v = past or (one[:, :, : layout.start] for one in self._earlier(name, i))
            is_shared = self._can_share and 1 < n <= layout.start / t and can_share(attn_bias)
            is_shared = is_shared if past is None else len(k) < n
            cache = BlockCache(Following(k, v, is_shared=is_shared) if past is None else Given(k, v))
            if is_shared:
                mask = x.new_zeros(1, 1, t, s) if attn_bias.mask is None else attn_bias.mask
                own = t if past is None else (k.shape[2] - s) // (n - 1)
                attn_bias = replace(attn_bias, mask=shared(mask, n, own), causal=False)
        memory_bias = None if memory is None else AttentionBias.between(layout, memory[1], dtype=x.dtype)
        tell_padding(t=layout.valid)
        return stack.blocks[i](x, layout, attn_bias, memory=memory, memory_bias=memory_bias, cache=cache)

    def _earlier(self, name: str, i: int) -> Keys:
        """The keys and values of a block without any removal."""
        if i not in self._past:
            self._past[i] = self._keys(name, i, self._plain[self._before((name, i))], self._copies(name, 1))
        return self._past[i]

    def _keys(self, name: str, i: int, x: Tensor, layout: Layout) -> Keys:
        """The keys and values of a block that reads x."""
        base = {str(at): edit for at, edit in self._base.items() if part_of(self._network, at.path) == (name, i)}
        k, v = (f"{name}.blocks.{i}.attn.{side}" for side in "kv")
        explicit = _hidden(map(Address.parse, base))
        with untraced(), recording(self._network, [k, v], edit=base, explicit=explicit) as seen:
            self._block(name, i, x, layout, None)  # It ends before it reads an encoder.
        return seen[k], seen[v]

    def _cells(self, some: Mapping[Address, Edit], first: passes.Part) -> tuple[int, int] | None:
        """The first position that these edits reach, or one before it, and the end; None for all positions."""
        if self.end is None or first[0] != "decoder" or self._network.keeps_states:
            return None
        last = len(self._network.last_stack.blocks) - 1
        ends = tuple(f".{last}.{value}" for value in ("attn.z", "attn.out", "cross.z", "ffn.out"))
        is_last = all(at.path.endswith(ends) for at in some)
        whole = self.end - 1 if is_last else 0  # The last block reads what others make at the answer's position only.
        starts = [dict(at.index).get("t", whole if is_everywhere(at, edit) else -1) for at, edit in some.items()]
        if not all(0 <= start < self.end for start in starts):
            return None
        n = self.end - min(starts)
        return max(0, self.end - (n if n == 1 else next_size(max(n, LEAST)))), self.end

    def _before(self, first: passes.Part) -> str:
        """The address of the states that a part reads."""
        name, start = first
        if name == "head":
            return last_states(self._network, self._last)
        return f"{name}.blocks.{start - 1}.resid_post" if start > 0 else f"{name}.blocks.0.resid_pre"

    def _read(self, x: Tensor, layout: Layout, *, whole: bool) -> Tensor:
        """What `answers` compares, of the last states; `whole` if edits need all positions of the head."""
        network = self._network
        if self.metric is not None and self.end is not None and not whole:
            return self.metric(network.head(x[:, self.end - 1 - layout.start][None], layout)[0], layout)
        if self.metric is not None:
            return self.metric(network.head(x, layout), layout)
        length = layouts(network, self._tokens)[self._last].grid[1]
        position = self._position if layout.grid[1] == length else -1
        return _distributions(network, x, layout, position, whole=whole)


def _moved(at: Address, cells: tuple[int, int] | None) -> Address:
    """The address relative to the first position that is computed."""
    start = 0 if cells is None else cells[0]
    return replace(at, index=tuple((axis, i - start if axis == "t" else i) for axis, i in at.index))


def _hidden(addresses: Iterable[Address]) -> bool:
    """True if fast kernels hide a value at one of these addresses."""
    return not all(SEEN.fullmatch(path.rpartition(".")[2]) for path in {at.path for at in addresses})


def _distributions(network: Transformer, x: Tensor, layout: Layout, position: int | None, *, whole: bool) -> Tensor:
    """n v: log probabilities, one row for each distribution that counts; `whole` if all positions must be computed."""
    valid, is_each = layout.valid_cells, network.config.answers_by_position
    if is_each and not whole:
        some = pieces(x[_counted(valid, position)].split(ROWS))
        return torch.cat([network.head(rows[None], layout)[0].float().log_softmax(-1) for rows in some])
    logits = network.head(x, layout)
    if isinstance(network.config.head, c.SpanHead):
        # Finite, because 0 * inf is not 0.
        logits = logits.mT.masked_fill(~valid[:, None], -1e9).flatten(0, 1)
    return (logits[_counted(valid, position)] if is_each else logits).float().log_softmax(-1)


def _counted(valid: Tensor, position: int | None) -> Tensor:
    if position is None:
        return valid
    length = valid.shape[1]
    if not -length <= position < length or not valid[:, position].any():
        raise UserError(f"position {position}: expected a real position of the last stack, whose length is {length}")
    only = torch.zeros_like(valid)
    only[:, position] = valid[:, position]
    return only
