"""The values of a forward pass that stores only the input of each block and computes the others on request."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod

import torch
from torch import Tensor

from clearhead.analysis.passes import Given, Part, layouts, part_of, seen_by_stack
from clearhead.config import Continuous
from clearhead.errors import UserError
from clearhead.explorer.lru_cache import LRUCache
from clearhead.explorer.recording.facts import TensorFact, check_finite
from clearhead.explorer.turns import refuse_left
from clearhead.machine.precision import Arithmetic
from clearhead.model import Layout, Tokens, Transformer
from clearhead.model.attention import Attention
from clearhead.model.attention_bias import AttentionBias
from clearhead.model.block import Memory
from clearhead.model.cache import BlockCache
from clearhead.model.heads import LanguageHead
from clearhead.model.layout import check_tokens
from clearhead.model.mixers.mixer import Mixer
from clearhead.model.mixers.selective_scan import ChannelStates
from clearhead.model.mixers.time_mixing import AgeingMean
from clearhead.model.mode import Evaluating
from clearhead.model.transformer import LayerKind
from clearhead.progress import cached
from clearhead.trace import Address, Edit, Trace, recording, trace

CELLS = 1 << 22
"""About how many attention weights of a block, or logits, are computed at a time."""
EDITED_CELLS = 1 << 26
"""The most of them in a part of the network with edits, which is computed at once."""
KEPT_BYTES = 64 << 20
"""Bytes of the computed values that are kept, those used last."""
Look = Callable[[str, Tensor], None]
"""Takes the address of a value and the value without the batch axis, or some rows of it, in order."""
HEAD: Part = ("head", 0)


class Blockwise(Mapping[str, Tensor]):
    """The values by address, float32, without the batch axis; -inf in cells that an edit closed.

    The pass keeps the input of each part. A part computes its values from its input when they are read, in windows of
    rows with about CELLS attention weights: bit for bit what the pass saw, where it took no fast kernel.
    """

    def __init__(
        self,
        network: Transformer,
        inputs: Sequence[Tokens],
        *,
        every: Trace,
        edit: Mapping[str, Edit],
        without: tuple[str, ...],
        arithmetic: Arithmetic,
        looks: tuple[str, ...],
        look: Look,
        before: "tuple[Blockwise, Collection[str]] | None",
    ) -> None:
        """Runs the pass; `look` is shown the values whose addresses end in one of `looks`, and the logits.

        `every` has all addresses, of any input; `without` names values that follow from others. `before` has a pass of
        the same input, and the paths whose edits differ: what comes before them is shared.

        Raises UserError for a number that is not finite, except for -inf.
        """
        self._network, self._edit, self._without, self._arithmetic = network, dict(edit), without, arithmetic
        with self._computing():
            self._tokens = seen_by_stack(network, inputs)
        self._layouts = layouts(network, self._tokens)
        self._inputs: dict[Part, Tensor] = {}
        self._biases: dict[tuple[str, LayerKind], AttentionBias] = {}
        self._memory: Memory | None = None
        self._kept: LRUCache[dict[str, Tensor]] = LRUCache(256, n_bytes=KEPT_BYTES, size=_size)
        self._looks, self._look = looks, look
        self._picture: dict[str, Tensor] = {}
        self.facts = {path: self._fact(path, every) for path in every if self._has(path)}
        """The fact of each address, in the order in which the values are computed."""
        self._add_pixels(inputs)
        stacks = network.stacks().items()
        parts = [*((name, i) for name, stack in stacks for i in range(-1, len(stack.blocks) + 1)), HEAD]
        self._order = {part: i for i, part in enumerate(parts)}
        if before is not None:
            other, paths = before
            first = self.first_of(paths)
            self._biases, self._memory = dict(other._biases), other._memory
            self._inputs = {part: other._inputs[part] for part in parts[: first + 1] if part in other._inputs}
            parts = parts[first:]
        for name, i in parts:
            refuse_left()
            x = self._forward((name, i))
            if name in network.stacks() and i < len(network.stacks()[name].blocks):
                self._inputs[name, i + 1] = x
            elif name == "encoder" and network.decoder is not None:
                self._memory = self._layouts[name].blank(x), self._layouts[name]
            elif name != "head":
                self._inputs[HEAD] = x

    def _add_pixels(self, inputs: Sequence[Tokens]) -> None:
        """Adds what is read of a picture or a sound, or the picture within a text, whose vectors no op makes."""
        reads, tokens = self._network.config.first.input, inputs[-1]
        if isinstance(reads, Continuous):
            self._picture[f"encoder.embed.{reads.values}"] = self._tokens["encoder"].ids[0]
        elif (pictures := tokens.pictures) is not None:
            picture, path = self._last_picture(pictures, tokens.grids), "decoder.embed.tokens"
            self._picture["decoder.embed.pixels"] = picture
            self.facts[path] = self.facts[path].model_copy(update={"by_hand": True})
        axes = reads.axes if isinstance(reads, Continuous) else "c y x"
        for path, value in self._picture.items():
            self.facts[path] = TensorFact(shape=tuple(value.shape), axes=axes)

    def _last_picture(self, pictures: Tensor, grids: Tensor | None) -> Tensor:
        """c y x: the last picture within a text, put together of its patches if it has any size."""
        if (seen := self._network.config.pictures) is None or grids is None:
            return pictures[-1]
        (rows, columns), join, side = grids[-1].tolist(), seen.projector.join, seen.reads.patch_size
        cells = pictures[-rows * columns :].view(rows // join, columns // join, join, join, -1, side, side)
        return cells.permute(4, 0, 2, 5, 1, 3, 6).flatten(4).flatten(1, 3)

    def positions(self, stack: str) -> Tensor:
        """t: the position numbers of a stack."""
        return self._layouts[stack].positions[0].cpu()

    def first_of(self, paths: Collection[str]) -> int:
        """The number of the first part that has one of the paths, in the order of the pass; the last part's if none."""
        return min((self._order[part_of(self._network, path)] for path in paths), default=len(self._order) - 1)

    @property
    def nbytes(self) -> int:
        """Bytes that the pass keeps by now."""
        return sum(x.nbytes for x in self._inputs.values()) + sum(map(_size, self._kept.newest_first()))

    def __iter__(self) -> Iterator[str]:
        return iter(self.facts)

    def __len__(self) -> int:
        return len(self.facts)

    def __contains__(self, address: object) -> bool:
        return address in self.facts

    def __getitem__(self, address: str) -> Tensor:
        """The value at an address with or without indices. Only the rows that it has are computed."""
        where = Address.parse(address)
        fact = self.facts[where.path]
        where.slices(fact.axes, torch.Size(fact.shape))
        part, index = part_of(self._network, where.path), dict(where.index)
        windows, axis = self._windows(part), _axis(where.path, fact.axes)
        if len(windows) == 1 or axis is None:
            return where.of(self._value(part, windows[0], where.path), fact.axes).float().cpu()
        if axis in index:
            i = index[axis] % windows[-1].stop
            rows = next(rows for rows in windows if i < rows.stop)
            local = Address(where.path, tuple((index | {axis: i - rows.start}).items()))
            return local.of(self._value(part, rows, where.path), fact.axes).float().cpu()
        pieces = [where.of(self._value(part, rows, where.path), fact.axes).float().cpu() for rows in windows]
        return torch.cat(pieces, [name for name in fact.axes.split() if name not in index].index(axis))

    # --- parts ---

    def _edits(self, part: Part) -> dict[str, Edit]:
        return {at: edit for at, edit in self._edit.items() if part_of(self._network, Address.parse(at).path) == part}

    def _windows(self, part: Part) -> list[slice]:
        """The rows that are computed at a time."""
        name, _ = part
        layout = self._layouts[list(self._layouts)[-1] if part == HEAD else name]
        length, width = layout.grid[1], 0
        head = self._network.head
        if part == HEAD and isinstance(head, LanguageHead):
            width = head.output.out_features
        elif part in self._blocks:
            stack = self._network.stacks()[name]
            # What is read from a table of distances belongs to no block, so their scores are computed at once.
            alone = layout.valid is None and layout.groups is None and stack.config.positions.kind != "disentangled"
            alone = alone and not any(isinstance(one, Mixer) for one in stack.blocks[part[1]].children())
            width = stack.config.n_heads * max(one.grid[1] for one in self._layouts.values()) if alone else 0
        if edits := self._edits(part):
            if width * length > EDITED_CELLS:
                most = f"at most {EDITED_CELLS // width} tokens for an edit here"
                raise UserError(f"{next(iter(edits))}: expected {most}, got {length}; cut the text")
            return [slice(0, length)]
        step = max(2, CELLS // width) if width else length
        return [slice(start, min(start + step, length)) for start in range(0, length, step)]

    def _is_fused(self, part: Part) -> bool:
        """True if a fast kernel makes no number for each pair of positions."""
        stack, positions = self._network.stacks()[part[0]], self._layouts[part[0]].positions
        kind, attn = stack.kinds[part[1]], stack.blocks[part[1]].attn
        if not isinstance(attn, Attention):
            return True
        encoding, one, n = stack.encoding(kind), positions[:, :1], positions.shape[1]
        has_bias = encoding is not None and encoding.score_bias(one, one) is not None
        return not (has_bias or kind.windowed or attn.is_explicit(n, n, stack.dtype, positions.device))

    # --- computing ---

    def _forward(self, part: Part) -> Tensor:
        """The result of a part; of the head its last rows."""
        (name, i), is_plain = part, part in self._blocks and not self._edits(part)
        result = f"{name}.blocks.{i}.resid_post"
        looked = [path for path in self.facts if path.endswith(self._looks) and part_of(self._network, path) == part]
        is_fast = is_plain and not looked and self._is_fused(part)
        windows = [slice(0, self._layouts[name].grid[1])] if is_fast else self._windows(part)
        found: list[Tensor] = []
        for rows in windows:
            if part == HEAD:  # All logits of a long text would take much memory.
                found.clear()
            values: dict[str, Tensor] = {}
            if is_fast:
                with self._computing():
                    found.append(self._compute(part, rows, None))
            elif is_plain:
                values = self._own(part, self._traced(part, rows, only=[*looked, result]))
                found.append(values[result][None])
            else:
                values = self._own(part, self._traced(part, rows, found.append))
                if len(windows) == 1:
                    self._kept.get(str(part), lambda values=values: values)
            for path, value in (values or {result: found[-1]}).items():
                check_finite(path, value)
                if path == "head.logits" or path.endswith(self._looks):
                    self._look(path, value)
        return torch.cat(found, 1) if len(found) > 1 else found[0]

    def _value(self, part: Part, rows: slice, path: str) -> Tensor:
        """The value, or these rows of it. With several windows, only these rows are computed."""
        name, i = part
        if path in self._picture:
            return self._picture[path]
        if path == f"{name}.blocks.{i}.resid_post":
            return self._inputs[name, i + 1][0, rows]
        is_whole, large = len(self._windows(part)) == 1, path in self._large
        if large and prod(self.facts[path].shape) > EDITED_CELLS:
            raise UserError(f"{path}: expected at most {EDITED_CELLS:,} weights of a layer, got more; cut the text")
        key, only = (f"{part} large" if large else str(part), ()) if is_whole else (f"{path} {rows.start}", (path,))
        return self._kept.get(key, lambda: self._own(part, self._traced(part, rows, only=only, large=large)))[path]

    def _traced(
        self,
        part: Part,
        rows: slice,
        take: Callable[[Tensor], None] = lambda _: None,
        *,
        only: Sequence[str] = (),
        large: bool = False,
    ) -> Trace:
        """The values of a part for these rows, or only those at some addresses; `take` takes the result."""
        keys = self._keys_of(part, rows)
        with self._computing():
            values = recording(self._network, only, explicit=True) if only else None
            with values or trace(self._network, self._edits(part), without=self._without, large=large) as seen:
                take(self._compute(part, rows, keys))
        return seen

    def _keys_of(self, part: Part, rows: slice) -> dict[str, Tensor] | None:
        """The values of all positions, which every window of rows reads; None for a block that is computed at once."""
        (name, i), layout = part, self._layouts.get(part[0])
        if part not in self._blocks or layout is None or rows == slice(0, layout.grid[1]):
            return None
        stack = self._network.stacks()[name]
        encoding = stack.encoding(stack.kinds[i])

        def made() -> dict[str, Tensor]:
            paths = [f"{name}.blocks.{i}.attn.{side}" for side in "kv"]
            attn_bias = AttentionBias(rotation=encoding.rotation(layout.positions) if encoding else None)
            with self._computing(), recording(self._network, paths, explicit=True) as seen:
                stack.blocks[i](self._inputs[part], layout, attn_bias)
            return {path[-1]: seen[path] for path in paths}

        return self._kept.get(f"{part} keys", made)

    @contextmanager
    def _computing(self) -> Iterator[None]:
        with self._arithmetic.products(), Evaluating(self._network), torch.no_grad():
            yield

    @cached
    def _blocks(self) -> frozenset[Part]:
        return frozenset((name, i) for name, stack in self._network.stacks().items() for i in range(len(stack.blocks)))

    def _compute(self, part: Part, rows: slice, keys: Mapping[str, Tensor] | None) -> Tensor:
        """These rows of the result of a part, 1 t d."""
        (name, i), x = part, self._inputs.get(part)
        if x is None:
            return self._embedded(name)
        layout = self._layouts[list(self._layouts)[-1] if part == HEAD else name]
        queries = layout
        if rows != slice(0, layout.grid[1]):
            queries = Layout((1, rows.stop - rows.start), layout.positions[:, rows], start=rows.start)
            x = x[:, rows]
        if part == HEAD:
            return self._network.head(x, queries)
        stack = self._network.stacks()[name]
        if part not in self._blocks:
            return x if stack.final_norm is None else stack.final_norm(x)
        kind, dtype = stack.kinds[i], x.dtype
        whole = self._biases.get((name, kind)) if keys is None else None
        attn_bias = whole or stack.attn_bias(queries, layout, kind=kind, dtype=dtype)
        memory = self._memory if stack.cross else None
        memory_bias = None if memory is None else AttentionBias.between(queries, memory[1], dtype=dtype)
        cache = None if keys is None else BlockCache(Given(keys["k"], keys["v"]))
        return stack.blocks[i](x, queries, attn_bias, memory=memory, memory_bias=memory_bias, cache=cache)

    def _embedded(self, name: str) -> Tensor:
        """The embedding; with it what is read from tables of distances, which has addresses too."""
        stack, layout = self._network.stacks()[name], self._layouts[name]
        check_tokens(self._tokens[name], stack.config)
        stack.check_length(layout, counted=layout.valid is None)
        x = stack.embed(self._tokens[name], layout, stack.positions.embedding(layout.positions))
        if len(self._windows((name, 0))) == 1:
            kinds = dict.fromkeys(stack.kinds)
            self._biases |= {(name, kind): stack.attn_bias(layout, layout, kind=kind, dtype=x.dtype) for kind in kinds}
        return x

    # --- values ---

    def _own(self, part: Part, seen: Trace) -> dict[str, Tensor]:
        """The values of a part without the batch axis; of masked scores those that an edit made."""
        paths = [path for path in seen if part_of(self._network, path) == part]
        return {path: seen[path][0] for path in paths if path in self._edited or not path.endswith(".masked")}

    @cached
    def _edited(self) -> frozenset[str]:
        paths = frozenset(Address.parse(at).path for at in self._edit)
        return paths | {one.writes for one in self._network.attached if f"{one.reads}.{one.name}" in paths}

    @cached
    def _large(self) -> frozenset[str]:
        """The paths of values that a trace has only if it may be large."""
        scans = (path for path, one in self._network.named_modules() if isinstance(one, ChannelStates | AgeingMean))
        return frozenset(f"{path}.weights" for path in scans)

    def _has(self, path: str) -> bool:
        name = path.rpartition(".")[2]
        return path in self._edited or name not in ("masked", "state", *self._without)

    def _fact(self, path: str, every: Trace) -> TensorFact:
        """The fact of the value, whose axes of positions are as long as this input."""
        axes, name = every.axes[path].removeprefix("b "), path.partition(".")[0]
        own = name if name in self._layouts else list(self._layouts)[-1]
        lengths = {str(axis): self._layouts[own].grid[1] for axis in "ts"}
        if ".cross." in path:
            lengths["s"] = self._layouts["encoder"].grid[1]
        sizes = zip(axes.split(), every[path].shape[1:], strict=True)
        shape = tuple(lengths.get(axis, n) for axis, n in sizes)
        return TensorFact(shape=shape, axes=axes, by_hand=path in self._edited)


def _axis(path: str, axes: str) -> str | None:
    """The axis of the rows of a window. Keys and values have none, but the norm of new keys has."""
    return "t" if "t" in axes.split() else "s" if ".attn.k_norm." in path else None


def _size(values: Mapping[str, Tensor]) -> int:
    return sum(value.nbytes for value in values.values())
