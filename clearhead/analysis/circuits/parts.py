"""The parts of a network that a circuit connects, in their order, and single parts that run on values of their own."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from torch import Tensor

from clearhead import config as c
from clearhead.analysis.circuits.branches import Branch, Reader, Split, Writer, with_features
from clearhead.analysis.features import Features
from clearhead.analysis.passes import layouts, repeated
from clearhead.errors import UserError
from clearhead.model import Tokens, Transformer
from clearhead.model.attention import Attention
from clearhead.model.attention_bias import AttentionBias
from clearhead.model.block import Memory
from clearhead.progress import cached
from clearhead.trace import Edit, Trace, trace


@dataclass(frozen=True)
class Group:
    """Readers of the same stream at the same place."""

    stream: str
    readers: tuple[Reader, ...]
    branch: Branch | None
    """None for the network's head."""


class Parts:
    """The writers and readers of a network by stack, and the order in which they come."""

    def __init__(self, network: Transformer, splits: Sequence[Split] = ()) -> None:
        """Raises UserError for features that have no place in the graph."""
        self.network, self.splits = network, splits
        own = {name: [one for one in splits if one.writes.split(".")[0] == name] for name in network.stacks()}
        self.branches = {name: with_features(name, stack, own[name]) for name, stack in network.stacks().items()}
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

    @cached
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

    def reading(self, name: str, i: int) -> list[Group]:
        """The groups that read a stack's stream just before its branch number i, or at its end."""
        return [group for group in self.groups if group.stream.startswith(f"{name}.") and self._place(group)[1] == i]

    def begins(self, group: Group) -> str:
        """The first writer of the stream that a group reads: behind the last cut, or an embedding's stack."""
        name, i = self._place(group)
        cuts = [branch for branch in self.branches[name][:i] if branch.is_cut]
        return str(cuts[-1].writers[0]) if cuts else f"{name}."

    def _place(self, group: Group) -> tuple[str, int]:
        """The stack whose stream a group reads, and the number of the branch before which it does."""
        name = group.stream.split(".")[0]
        some = self.branches[name]
        if group.branch not in some:
            return name, len(some)
        if group.branch.before == group.stream:
            return name, some.index(group.branch)
        return name, next(i for i, one in enumerate(some) if one.before == group.stream and not one.is_cut)

    def start(self, name: str, x: Tensor) -> Tensor:
        """The first stream of a stack, from the sum of its embedding's outputs."""
        embed = self.network.stacks()[name].embed
        x = x if embed.norm is None else embed.norm(x)
        return x if embed.project is None else embed.project(x)

    def end(self, name: str, x: Tensor) -> Tensor:
        """A stack's last states, from its stream."""
        norm = self.network.stacks()[name].final_norm
        return x if norm is None else norm(x)


def with_a_place(network: Transformer, features: Sequence[Features]) -> list[Features]:
    """The features that a circuit has a place for, of each value the first ones."""
    found: list[Features] = []
    for one in features:
        with suppress(UserError):
            Parts(network, [Split(other) for other in (*found, one)])
            found.append(one)
    return found


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
            attn_bias = stack.attn_bias(layout, layout, kind=stack.kinds[int(i)], dtype=x.dtype)
        else:
            keys = self.layout["encoder"]
            read = keys.blank(self.parts.end("encoder", memory)), keys
            attn_bias = AttentionBias.between(layout, keys, dtype=x.dtype)
        with trace(self.parts.network, edit, without=() if edit else ("heads",)) as seen:
            branch.module(branch.normed(x), layout, attn_bias, memory=read)
        return seen

    def made(self, group: Group, x: Tensor, seen: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What the readers of a group make of a stream, (n b) t d, by their paths.

        The other side of a cross-attention reads the stream in `seen`.
        """
        branch = group.branch
        if branch is None:
            return {group.readers[0].path: self.result(x)}
        if not isinstance(branch.module, Attention):
            return branch.made(x, self.layout[branch.path.partition(".")[0]])
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
