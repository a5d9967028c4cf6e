"""The parts of a network that a circuit connects: what writes to a residual stream, and what reads it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from clearhead import config as c
from clearhead.analysis.ablation import layouts, repeated
from clearhead.model import Tokens, Transformer
from clearhead.model.attention import Attention
from clearhead.model.block import Block, Memory
from clearhead.model.norm import Norm
from clearhead.model.reach import Reach
from clearhead.model.residual import LayerScale
from clearhead.model.transformer import Stack
from clearhead.trace import Edit, Trace, trace

Norms = tuple[Norm | None, Norm | None, Norm | None]


@dataclass(frozen=True)
class Writer:
    """Adds to a residual stream: an embedding, positions, a head or an FFN."""

    path: str
    """The address of what it writes, with all heads of an attention."""
    head: int | None = None

    def __str__(self) -> str:
        return self.path if self.head is None else f"{self.path}[h={self.head}]"


@dataclass(frozen=True)
class Reader:
    """Reads a residual stream: the query, key or value of a head, an FFN, or the network's head."""

    name: str
    """`….attn.q`, `….cross.k`, `….ffn.pre` or `head.logits`."""
    head: int | None
    path: str
    """The address of the first value that follows from this reading alone."""
    feeds: tuple[str, ...]
    """The writers that write what they make of it; none for the network's head."""

    def __str__(self) -> str:
        return self.name if self.head is None else f"{self.name}[h={self.head}]"


@dataclass(frozen=True, eq=False)
class Branch:
    """An attention or a feed-forward with its place in a block."""

    path: str
    block: Block
    module: nn.Module
    reads: str
    """The address of the stream that it reads."""
    before: str
    """The address of the stream to which its result is added."""
    result: str
    """The address of the stream after it."""
    norms: Norms
    """The norms before it, after it, and after the sum."""
    scale: LayerScale | None

    @property
    def written(self) -> str:
        """The address of what it writes: `heads`, b h t d, or `out`, b t d."""
        return f"{self.path}.{'heads' if isinstance(self.module, Attention) else 'out'}"

    @property
    def writers(self) -> list[Writer]:
        """Its heads, or itself."""
        heads = range(self.module.n_heads) if isinstance(self.module, Attention) else (None,)
        return [Writer(self.written, head) for head in heads]

    def readers(self, sides: str = "qkv") -> list[Reader]:
        """The queries, keys and values of its heads that `sides` names, or its feed-forward."""
        if not isinstance(self.module, Attention):
            return [Reader(f"{self.path}.pre", None, self.written, (self.written,))]
        found: list[Reader] = []
        for side in sides:
            path = f"{self.path}.{side}"
            n = self.module.n_heads if side == "q" else self.module.n_kv_heads
            group = self.module.n_heads // n
            for head in range(n):
                feeds = range(head * group, (head + 1) * group)
                found.append(Reader(path, head, path, tuple(f"{self.written}[h={h}]" for h in feeds)))
        return found

    def onward(self, x: Tensor, out: Tensor) -> Tensor:
        """The stream after the branch, ... b t d, from the stream before it and the branch's result."""
        _, out_norm, after = self.norms
        branch = out if self.scale is None else self.scale(out)
        return self.block.residual(x, lambda _: branch, (after, out_norm), False)

    def changes(self, x: Tensor, out: Tensor, before: Tensor, written: Tensor) -> Tensor:
        """n b t d: by how much the stream after the branch falls with each change alone.

        `before` are changes of the stream before it, x, and `written` changes of its result.
        """
        if self.norms[2] is None:
            nothing = torch.zeros_like(x)
            return torch.cat([before, self.onward(nothing, out) - self.onward(nothing, out - written)])
        whole = self.onward(x, out)
        return torch.cat([whole - self.onward(x - before, out), whole - self.onward(x, out - written)])

    def normed(self, x: Tensor) -> Tensor:
        """What the module reads of a stream."""
        norm = self.norms[0]
        return x if norm is None else norm(x)


def branches(name: str, stack: Stack) -> Iterator[Branch]:
    """The branches of a stack in the order in which they add to its stream."""
    post = stack.config.norm_place == "post"
    for i, block in enumerate(stack.blocks):
        assert isinstance(block, Block)
        at = f"{name}.blocks.{i}"

        def norms(norm: Norm | None, out: Norm | None) -> Norms:
            return (None, out, norm) if post else (norm, out, None)

        pre, x, end = f"{at}.resid_pre", f"{at}.resid_attn", f"{at}.resid_post"
        attention = norms(block.attn_norm, block.attn_out_norm)
        yield Branch(f"{at}.attn", block, block.attn, pre, pre, x, attention, block.attn_scale)
        if block.cross is not None:
            crossing = norms(block.cross_norm, block.cross_out_norm)
            after = f"{at}.resid_cross"
            yield Branch(f"{at}.cross", block, block.cross, x, x, after, crossing, block.cross_scale)
            x = after
        norm = block.attn_norm if block.parallel == "one_norm" else block.ffn_norm
        reads = pre if block.parallel else x
        yield Branch(f"{at}.ffn", block, block.ffn, reads, x, end, norms(norm, block.ffn_out_norm), block.ffn_scale)


@dataclass(frozen=True)
class Group:
    """Readers of the same stream at the same place."""

    stream: str
    readers: tuple[Reader, ...]
    branch: Branch | None
    """None for the network's head."""


class Parts:
    """The writers and readers of a network by stack, and the order in which they come."""

    def __init__(self, network: Transformer) -> None:
        self.network = network
        self.branches = {name: list(branches(name, stack)) for name, stack in network.stacks().items()}
        self.ends = {name: found[-1].result for name, found in self.branches.items()}

    def embedded(self, name: str, seen: Mapping[str, Tensor]) -> list[Writer]:
        """The writers with which a stack's stream begins."""
        return [Writer(path) for path in (f"{name}.embed.tokens", f"{name}.embed.positions") if path in seen]

    def writers(self, seen: Mapping[str, Tensor]) -> list[Writer]:
        """Every writer, stack by stack, in order."""
        found: list[Writer] = []
        for name, some in self.branches.items():
            found += [*self.embedded(name, seen), *(writer for branch in some for writer in branch.writers)]
        return found

    @cached_property
    def groups(self) -> list[Group]:
        """Every reader, in groups, in the order of the streams that they read."""
        found: list[Group] = []
        for name, some in self.branches.items():
            for branch in some:
                crosses = branch.module is branch.block.cross
                found.append(Group(branch.reads, tuple(branch.readers("q" if crosses else "qkv")), branch))
            if name == "encoder" and "decoder" in self.branches:
                across = [branch for branch in self.branches["decoder"] if branch.module is branch.block.cross]
                found += [Group(self.ends[name], tuple(branch.readers("kv")), branch) for branch in across]
        last = list(self.ends.values())[-1]
        head = Reader(output_of(self.network), None, output_of(self.network), ())
        return [*found, Group(last, (head,), None)]

    def start(self, name: str, x: Tensor) -> Tensor:
        """The stream with which a stack begins, from the sum of what its embedding writes."""
        embed = self.network.stacks()[name].embed
        x = x if embed.norm is None else embed.norm(x)
        return x if embed.project is None else embed.project(x)

    def end(self, name: str, x: Tensor) -> Tensor:
        """A stack's last states, from its stream."""
        norm = self.network.stacks()[name].final_norm
        return x if norm is None else norm(x)


def output_of(network: Transformer) -> str:
    """The address of the network's result, or the path of a head that has none."""
    match network.config.head:
        case c.NoHead():
            return "head"
        case c.VectorHead():
            return "head.vector"
        case _:
            return "head.logits"


class Copies:
    """Several copies of a batch, on which one branch runs alone."""

    def __init__(self, parts: Parts, tokens: Mapping[str, Tokens], n: int) -> None:
        self.parts, self.n = parts, n
        self.tokens = {name: repeated(batch, n) for name, batch in tokens.items()}
        self.layout = layouts(parts.network, self.tokens)

    def attention(self, branch: Branch, x: Tensor, memory: Tensor | None, edit: Mapping[str, Edit]) -> Trace:
        """The values of an attention that reads the streams x and, across, `memory`: (n b) t d."""
        name, _, i, _ = branch.path.split(".")
        stack, layout = self.parts.network.stacks()[name], self.layout[name]
        read: Memory | None = None
        if memory is None:
            reach = stack.reach(layout, layout, kind=stack.kinds[int(i)], dtype=x.dtype)
        else:
            keys = self.layout["encoder"]
            read = keys.blank(self.parts.end("encoder", memory)), keys
            reach = Reach.between(layout, keys, dtype=x.dtype)
        with trace(self.parts.network, edit, without=() if edit else ("heads",)) as seen:
            branch.module(branch.normed(x), layout, reach, memory=read)
        return seen

    def made(self, group: Group, x: Tensor, seen: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What the readers of a group make of a stream, (n b) t d, by their paths.

        The other side of a cross-attention reads the stream in `seen`.
        """
        branch = group.branch
        if branch is None:
            return {group.readers[0].path: self.result(x)}
        if not isinstance(branch.module, Attention):
            return {branch.written: branch.module(branch.normed(x))}
        memory = None
        if branch.module is branch.block.cross:
            is_across = group.stream != branch.reads
            other = seen[branch.reads if is_across else self.parts.ends["encoder"]].repeat(self.n, 1, 1)
            x, memory = (other, x) if is_across else (x, other)
        made = self.attention(branch, x, memory, {})
        return {path: made[path] for path in dict.fromkeys(reader.path for reader in group.readers)}

    def result(self, x: Tensor) -> Tensor:
        """The network's result from the last stream."""
        name = list(self.layout)[-1]
        return self.parts.network.head(self.parts.end(name, x), self.layout[name])


def by_head(value: Tensor) -> Tensor:
    """b h t d -> h b t d, and b t d -> 1 b t d: what each writer of a branch wrote."""
    return value.transpose(0, 1) if value.ndim == 4 else value[None]
