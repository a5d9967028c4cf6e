"""Many edits of one text in few passes: each has a row of a batch, and a pass computes only what they reach."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from clearhead.analysis.passes import changing, layouts
from clearhead.brief import brief
from clearhead.model import Layout, Tokens, Transformer
from clearhead.model.attention_bias import AttentionBias
from clearhead.model.block import Memory
from clearhead.model.cache import BlockCache, GrowingKeyValues, KeyValues
from clearhead.model.mode import Evaluating
from clearhead.progress import pieces
from clearhead.trace import Address, Edit, recording, zero
from clearhead.trace.address import apply

STEPS = 16
"""About how many first positions the passes of one text have."""
Read = Callable[[Tensor, Layout, range], Tensor]
"""The last states, n t d or packed, their layout and their positions -> n ..."""


@dataclass(frozen=True)
class Change:
    """One edit: a value in place of some columns of a part of a block, at some tokens."""

    __repr__ = brief

    stack: str
    block: int
    """The number of blocks stands for the stream after the last one."""
    part: str
    """`attn` or `cross`: the heads, side by side; `ffn`: its output; "": the stream that the block reads."""
    value: Tensor | float
    tokens: tuple[int, ...] | None = None
    """None for all."""
    columns: slice = field(default_factory=lambda: slice(None))

    def put(self, row: Tensor, cells: range) -> None:
        """Writes the value into a row, t d, of the positions `cells`."""
        if self.tokens is None:
            row[:, self.columns] = self.value
        elif there := [t - cells.start for t in self.tokens if t in cells]:
            row[there, self.columns] = self.value


class Changes:
    """The pass of one text, whose graph is kept for gradients, and those of its changes."""

    def __init__(
        self, network: Transformer, tokens: Mapping[str, Tokens], edit: Mapping[str, Edit], *, budget: int
    ) -> None:
        """The edits hold in every pass, and a pass of changes has at most about `budget` positions."""
        self._network, self._tokens, self._edit, self._budget = network, tokens, dict(edit), budget
        self.layouts = layouts(network, tokens)
        self.streams: dict[str, list[Tensor]] = {}
        """1 t d by stack: what each block reads, and what the last one makes."""
        self.parts: dict[str, Tensor] = {}
        """What the output map of each attention reads, 1 t (h k), and the output of each feed-forward, by its path."""
        self._caches: dict[str, list[BlockCache]] = {}
        self._memory: Memory | None = None
        # Fewer positions are computed only if no edit counts them.
        self._is_cut = all(_is_everywhere(at, value) for at, value in self._edit.items())
        with self._computing([*self.layouts], -1), torch.enable_grad(), self._looking():
            self.states = self._own()

    def read(self, read: Read) -> Tensor:
        """What a function reads in the last states of the text itself, with its graph."""
        layout = list(self.layouts.values())[-1]
        with self._computing([], 0), torch.enable_grad():
            return read(self.states, layout, range(layout.grid[1]))

    def rows(self, changes: Iterable[Change], read: Read, end: int) -> Iterator[tuple[Sequence[Change], Tensor]]:
        """What a function reads after each change, several at a time, up to the position `end` of the last stack."""
        groups: dict[tuple[str, bool, int], list[Change]] = {}
        for change in changes:
            is_after = change.block == len(self._network.stacks()[change.stack].blocks)
            groups.setdefault((change.stack, is_after, self._cells(change, end).start), []).append(change)
        for (name, _, start), group in groups.items():
            group.sort(key=lambda change: change.block)
            cells = range(start, self._stop(name, end))
            n = max(1, self._budget // len(cells))
            for i in pieces(range(0, len(group), n)):
                some = group[i : i + n]
                with self._computing([name, "decoder"], some[0].block), torch.no_grad():
                    found = read(*self._after(some, cells, end))
                yield some, found

    def cost(self, change: Change, end: int) -> int:
        """About how many multiplications the pass of a change takes."""
        names, total = list(self.layouts), 0
        for name in names[names.index(change.stack) :]:
            is_own = name == change.stack
            cells = self._cells(change, end) if is_own else range(self._stop(name, end))
            blocks = self._network.stacks()[name].blocks[change.block if is_own else 0 :]
            total += len(cells) * sum(parameter.numel() for block in blocks for parameter in block.parameters())
        return total

    def weights(self, path: str) -> tuple[Tensor, Tensor]:
        """h t s and h s k: the weights of an attention, and its values."""
        name, _, i, _ = path.split(".")
        at = [f"{path}.weights", f"{path}.v"]
        live = {edited: edit for edited, edit in self._edit.items() if edited.startswith(f"{name}.blocks.{i}.")}
        live = {edited: edit for edited, edit in live.items() if not _is_first(edited)}
        with Evaluating(self._network), torch.no_grad():
            with recording(self._network, at, edit=live, explicit=True) as seen:
                x = self.streams[name][int(i)]
                self._block(name, int(i), x, range(x.shape[1]), self._memory)
            return seen[at[0]][0], seen[at[1]][0]

    # --- the pass of the text itself ---

    def _own(self) -> Tensor:
        memory, x = None, torch.empty(0)
        for name, stack in self._network.stacks().items():
            layout = self.layouts[name]
            x = stack.embed(self._tokens[name], layout, stack.positions.embedding(layout.positions))
            for at, edit in self._edit.items():
                if _is_first(at) and at.startswith(name):
                    x = apply(x, Address.parse(at), edit, "b t d")
            x = x.detach().requires_grad_()
            streams, caches = self.streams.setdefault(name, [x]), self._caches.setdefault(name, [])
            for i in range(len(stack.blocks)):
                caches.append(BlockCache())
                x = self._block(name, i, x, range(x.shape[1]), memory, cache=caches[-1])
                streams.append(x)
            x = x if stack.final_norm is None else stack.final_norm(x)
            if name == "encoder":
                memory, self._memory = (x, layout), (x.detach(), layout)
        return x

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """Keeps what the parts of all blocks read or make."""

        def keep(path: str, value: Tensor) -> Tensor:
            return self.parts.setdefault(path, value)

        with ExitStack() as several:
            for name, stack in self._network.stacks().items():
                for i, block in enumerate(stack.blocks):
                    for part in ("attn", "cross", "ffn") if stack.cross else ("attn", "ffn"):
                        several.enter_context(_changing(block, part, partial(keep, f"{name}.blocks.{i}.{part}")))
            yield

    # --- the passes of changes ---

    def _after(self, changes: Sequence[Change], cells: range, end: int) -> tuple[Tensor, Layout, range]:
        """The last states with each change in its own row."""
        name = changes[0].stack
        x = self._blocks(name, self._rows(name, changes[0].block, 0, cells), changes, cells)
        layout = self._layout(name, len(x), cells)
        if name == "encoder" and self._network.decoder is not None:
            cells, memory = range(self._stop("decoder", end)), (x, layout)
            x = self._blocks("decoder", self._rows("decoder", 0, len(x), cells), [], cells, memory)
            layout = self._layout("decoder", len(x), cells)
        return x, layout, cells

    def _rows(self, name: str, i: int, n: int, cells: range) -> Tensor:
        """n t d: what a block reads in the text's own pass."""
        return self.streams[name][i][:, cells.start : cells.stop].expand(n, -1, -1)

    def _blocks(
        self, name: str, x: Tensor, changes: Sequence[Change], cells: range, memory: Memory | None = None
    ) -> Tensor:
        """The last states of a stack, from the block of the first change on; a row is added for each change."""
        stack = self._network.stacks()[name]
        for i in range(changes[0].block if changes else 0, len(stack.blocks) + 1):
            if here := [change for change in changes if change.block == i]:
                x = torch.cat([x, self._rows(name, i, len(here), cells)])
                _put(here, "", cells, x)
            if i == len(stack.blocks):
                break
            kept, past, across = self._caches[name][i], GrowingKeyValues(), GrowingKeyValues()
            if cells.start and kept.attn.k is not None and kept.attn.v is not None:
                past = _After(kept.attn.k[:, :, : cells.start], kept.attn.v[:, :, : cells.start])
            if memory is None:  # All rows read the text's own.
                across = GrowingKeyValues(kept.cross.k, kept.cross.v)
            with ExitStack() as hooks:
                for part in sorted({change.part for change in here} - {""}):
                    hooks.enter_context(_changing(stack.blocks[i], part, partial(_put, here, part, cells)))
                x = self._block(name, i, x, cells, memory or self._memory, BlockCache(past, across))
        return x if stack.final_norm is None else stack.final_norm(x)

    def _block(
        self, name: str, i: int, x: Tensor, cells: range, memory: Memory | None, cache: BlockCache | None = None
    ) -> Tensor:
        stack, memory = self._network.stacks()[name], memory if self._network.stacks()[name].cross else None
        queries, keys = (self._layout(name, len(x), some) for some in (cells, range(cells.stop)))
        attn_bias = stack.attn_bias(queries, keys, kind=stack.kinds[i], dtype=x.dtype)
        memory_bias = None if memory is None else AttentionBias.between(queries, memory[1], dtype=x.dtype)
        return stack.blocks[i](x, queries, attn_bias, memory=memory, memory_bias=memory_bias, cache=cache)

    def _layout(self, name: str, n: int, cells: range) -> Layout:
        positions = self.layouts[name].positions[:, cells.start : cells.stop]
        return Layout((n, len(cells)), positions, start=cells.start)

    def _stop(self, name: str, end: int) -> int:
        """The number of positions of a stack that can reach the position `end` of the last one."""
        return end + 1 if self._is_cut and self._network.stacks()[name].causal else self.layouts[name].grid[1]

    def _cells(self, change: Change, end: int) -> range:
        """The positions of its stack that a change reaches, from a round number on."""
        stop = self._stop(change.stack, end)
        if change.tokens is None or not self._is_cut or not self._network.stacks()[change.stack].causal:
            return range(stop)
        step = max(1, stop // STEPS)
        return range(min(change.tokens) // step * step, stop)

    @contextmanager
    def _computing(self, names: Sequence[str], start: int) -> Iterator[None]:
        """Evaluates with the edits of the head and of these stacks, of the first one from the block `start` on."""
        live: dict[str, Edit] = {}
        for at, edit in self._edit.items():
            stack, _, rest = at.partition(".")
            number = re.match(r"blocks\.(\d+)\.", rest)
            is_before = start >= 0 and rest.startswith("embed.")
            is_before |= number is not None and stack in names[:1] and int(number[1]) < start
            if stack in ("head", *names) and not is_before and not _is_first(at):
                live[at] = edit
        with ExitStack() as several:
            several.enter_context(Evaluating(self._network))
            if live:
                several.enter_context(recording(self._network, (), edit=live, explicit=True))
            yield


class _After(KeyValues):
    """Keys and values that follow those of the text itself."""

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        assert self.k is not None
        assert self.v is not None
        before = len(k), -1, -1, -1
        return torch.cat([self.k.expand(before), k], 2), torch.cat([self.v.expand(before), v], 2)


def _changing(block: nn.Module, part: str, change: Callable[[Tensor], Tensor]) -> AbstractContextManager[None]:
    """Changes what the output map of an attention reads, or what a feed-forward makes."""
    reads = part != "ffn"
    return changing(block.get_submodule(f"{part}.out" if reads else part), change, reads=reads)


def _put(changes: Sequence[Change], part: str, cells: range, value: Tensor) -> Tensor:
    """Writes the changes of a part into the last rows of a value, n t d."""
    value = value.clone() if part else value
    for row, change in zip(value[len(value) - len(changes) :], changes, strict=True):
        if change.part == part:
            change.put(row, cells)
    return value


def _is_first(at: str) -> bool:
    """True for the stream that the first block reads, which is made once."""
    return Address.parse(at).path.endswith(".blocks.0.resid_pre")


def _is_everywhere(at: str, edit: Edit) -> bool:
    """True for an edit that does the same at every position."""
    return (edit is zero or isinstance(edit, int | float)) and not {"t", "s"} & dict(Address.parse(at).index).keys()
