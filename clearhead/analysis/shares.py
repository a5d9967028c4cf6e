"""A value as a sum of what earlier parts of the network wrote, while every norm keeps the scale it had.

Reads the ops of the network, so that one walk serves every family: post-norm too, because a norm of a given scale is
linear.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.analysis.passes import Inputs, layouts, one_text, traced
from clearhead.brief import brief
from clearhead.model import Transformer
from clearhead.model.linear import parameter
from clearhead.model.meta import ops_of
from clearhead.model.ops import KINDS, Call, Op
from clearhead.trace import Address, Edit

WRITER = re.compile(r"\w+\.(embed\.(tokens|positions)|blocks\.\d+\.ffn\.out)")
TURNS = frozenset({"rotate", "rotate_grid"})
LEARNED = frozenset({"rows", "learned"})
"""Kinds of op whose result is a parameter."""
LINEAR = TURNS | {"copy", "add", "join", "scale", "linear", "gain", "split", "repeat", "norm", "pool"}
"""Kinds of op that are linear in their first input, or in both; of a norm once its scale is given."""


@dataclass(frozen=True)
class Parts:
    """The summands of a value at one position."""

    __repr__ = brief

    names: tuple[str, ...]
    """An address for what a part of the network wrote, a parameter's name for a bias."""
    values: Tensor
    """... n d, float64: one row for each name."""

    def joined(self, other: "Parts") -> "Parts":
        """The summands of both."""
        return Parts(self.names + other.names, torch.cat([self.values, other.values], -2))

    def beside(self, other: "Parts") -> "Parts":
        """The summands of the vector that has the other's numbers behind its own."""
        names, width = [*dict.fromkeys(self.names + other.names)], self.values.shape[-1]
        shape = *self.values.shape[:-2], len(names), width + other.values.shape[-1]
        whole = self.values.new_zeros(shape)
        for one, part in ((self, whole[..., :width]), (other, whole[..., width:])):
            part.index_add_(-2, torch.tensor([names.index(name) for name in one.names]), one.values)
        return Parts(tuple(names), whole)


class Shares:
    """Splits the values of one pass over one text into what each part wrote: the embedding, positions, each head, each
    feed-forward part, and every bias by itself.

    A value that an edit wrote is a part of its own. Sums are made in float64.
    """

    def __init__(
        self,
        network: Transformer,
        value: Callable[[str], Tensor],
        numbers: Mapping[str, Tensor],
        by_hand: Collection[str] = (),
    ) -> None:
        """`value` looks a value up by its path, without a batch axis; `numbers` are the position numbers by
        `STACK.positions`; `by_hand` are the paths of edits.
        """
        self.network, self.value, self.numbers, self.by_hand = network, value, numbers, frozenset(by_hand)
        self.ops = {op.out: op for op in ops_of(network.config)}

    @classmethod
    def traced(cls, network: Transformer, inputs: Inputs, edit: Mapping[str, Edit] | None = None) -> "Shares":
        """Runs the network over one text, an input for each stack. Raises UserError for a batch or padding."""
        tokens = one_text(network, inputs)
        seen, _ = traced(network, tokens, edit, without=("heads",))
        places = layouts(network, tokens)
        numbers = {f"{name}.positions": layout.positions[0] for name, layout in places.items()}
        return cls(network, lambda at: seen[at][0], numbers, {Address.parse(at).path for at in edit or {}})

    @torch.no_grad()
    def parts(self, at: str, position: int) -> Parts:
        """The summands of the vector at this path and position; of each head where the value has an axis of heads."""
        found: dict[str, Parts] = {}
        for op in self._path(at):
            found[op.out] = self._made(op, position, found)
        return found[at]

    @torch.no_grad()
    def onward(self, start: str, x: Tensor, position: int, end: str) -> Tensor | None:
        """n d -> n e: what rows that are added to the value `start` at one position add to the value `end` directly,
        through no other attention or feed-forward part; None if an edit wrote a value on the way.
        """
        found = {start: x}
        for op in self._path(end):
            own = [found[name] for name in op.inputs if name in found]
            if own and op.out not in found and not self._is_given(op):
                found[op.out] = sum(own[1:], own[0]) if op.op == "add" else self._through(op, own, position)
        return found.get(end)

    def at(self, path: str, position: int) -> Tensor:
        """... 1 d: the recorded vector at a position."""
        return _exact(self.value(path).select(-2, position))[..., None, :]

    def weight(self, name: str) -> Tensor:
        """A parameter, in float64."""
        return _exact(parameter(self.network, name))

    def row(self, name: str, i: int) -> Tensor:
        """A row of a parameter, in float64."""
        return _exact(parameter(self.network, name)[i])

    def number(self, name: str, *positions: int) -> Tensor:
        """The position numbers of these positions."""
        return self.numbers[name].cpu()[list(positions)]

    def evaluated(self, op: Op, *inputs: Tensor) -> Tensor:
        """The result of an op for other inputs, with all its weights."""
        return KINDS[op.op].evaluate(Call(op, list(inputs), [self.weight(name) for name in op.weights]))

    def _path(self, end: str) -> list[Op]:
        """The ops from what is given to a value, in order."""
        needed, waiting = set[str](), [end]
        while waiting:
            name = waiting.pop()
            if name not in needed:
                needed.add(name)
                op = self.ops[name]
                waiting += () if self._is_given(op) else op.inputs if op.op in ("add", "join") else op.inputs[:1]
        return [op for op in self.ops.values() if op.out in needed]

    def _is_given(self, op: Op) -> bool:
        """Returns True if the sum ends at this op, because its result is a part by itself."""
        changed = op.out in self.by_hand or (op.op == "norm" and not self.by_hand.isdisjoint(op.inputs[1:-1]))
        return changed or op.op not in LINEAR or WRITER.fullmatch(op.out) is not None

    def _made(self, op: Op, position: int, found: Mapping[str, Parts]) -> Parts:
        if self._is_given(op):
            return self._given(op, position)
        if op.op == "add":
            first, second = (found[name] for name in op.inputs)
            return first.joined(second)
        if op.op == "join":
            first, second = (found[name] for name in op.inputs)
            return first.beside(second)
        before = found[op.inputs[0]]
        made = Parts(before.names, self._through(op, [before.values], position))
        return self._with_bias(op, made)

    def _given(self, op: Op, position: int) -> Parts:
        if op.op in LEARNED:
            return Parts((op.out,), self.weight(op.weights[0])[position][None])
        if op.op != "sum_heads" or op.out in self.by_hand or WRITER.fullmatch(op.out):
            return Parts((op.out,), self.at(op.out, position))
        heads = self.ops[op.inputs[0]]
        if heads.out in self.by_hand:
            each = self.at(heads.out, position)
        else:
            each = self.evaluated(heads, self.at(heads.inputs[0], position))
        return self._with_bias(op, Parts(tuple(f"{heads.out}[h={h}]" for h in range(len(each))), each[:, 0]))

    def _with_bias(self, op: Op, made: Parts) -> Parts:
        biases = op.weights if op.op == "sum_heads" else op.weights[1:]
        for name in biases:
            row = self.weight(name).expand(*made.values.shape[:-2], 1, -1)
            made = made.joined(Parts((name,), row))
        return made

    def _through(self, op: Op, own: list[Tensor], position: int) -> Tensor:
        """What the op makes of each row at this position, without its bias."""
        x, weights = own[0], [self.weight(name) for name in op.weights[:1]]
        if op.op == "norm":
            mean = [x.mean(-1, keepdim=True)] if len(op.inputs) > 2 else []
            own = [x, *mean, self.at(op.inputs[-1], position)]
        elif op.op in TURNS:
            # In float32, because the network has its angles in float32.
            numbers = self.number(op.inputs[1], position).expand(x.shape[-2])
            return _exact(KINDS[op.op].evaluate(Call(op, [x.float(), numbers], weights)))
        elif op.op == "pool":
            alone = x.new_zeros(len(self.numbers[f"{op.inputs[0].split('.')[0]}.positions"]), 1)
            alone[position] = 1
            return x * KINDS[op.op].evaluate(Call(op, [alone], []))
        return KINDS[op.op].evaluate(Call(op, own, weights))


def _exact(x: Tensor) -> Tensor:
    return x.detach().cpu().double()
