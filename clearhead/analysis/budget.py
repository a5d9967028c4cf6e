"""What edited passes cost, and which of them are worth it."""

from collections.abc import Mapping, Sequence

from clearhead.analysis.passes import part_of
from clearhead.model import Transformer
from clearhead.trace import Address


class Budget:
    """About how many multiplications the pass of an edit takes, from its block on."""

    def __init__(self, network: Transformer, lengths: Mapping[str, int], *, end: int | None) -> None:
        """`lengths` are those of the stacks; `end` is the number of positions of a decoder that reach the answer."""
        self._network, self._lengths, self._end = network, lengths, end
        self._sizes = {
            name: [sum(one.numel() for one in block.parameters()) for block in stack.blocks]
            for name, stack in network.stacks().items()
        }
        self.whole = sum(n * sum(self._sizes[name]) for name, n in lengths.items())
        """That of a pass of the whole text."""

    def cost(self, at: Address) -> int:
        """That of an edit at this address."""
        (own, first), names, total = part_of(self._network, at.path), [*self._lengths], 0
        for name in names[names.index(own) :]:
            n = self._lengths[name]
            if name == "decoder" and self._end is not None:
                n = self._end - dict(at.index).get("t", 0)
            total += n * sum(self._sizes[name][first if name == own else 0 :])
        return total


def affordable(costs: Sequence[int], strengths: Sequence[float], budget: float) -> list[int]:
    """The numbers of those that the budget reaches: half of it for the strongest, then what is strong for its cost."""
    left, found = budget, list[int]()
    for kept, scale in ((budget / 2, [1] * len(costs)), (0, costs)):
        for i in sorted({*range(len(costs))} - {*found}, key=lambda i: -strengths[i] / scale[i]):
            if costs[i] <= left - kept or not found:
                found.append(i)
                left -= costs[i]
    return found
