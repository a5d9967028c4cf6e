"""Plans which examples form a batch, and in which order, from (seed, epoch) alone. Imports no torch.

A plan holds indices and offsets, never text. Equal arguments and an equal numpy version give equal plans.
"""

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar, overload

import numpy as np

from clearhead.brief import brief
from clearhead.errors import UserError
from clearhead.randomness import key

BLOCK = 8192
"""Number of examples converted to Python numbers at a time."""


T = TypeVar("T")


class OnDemand(Sequence[T]):
    """A read-only list that makes each member on access."""

    @abstractmethod
    def make(self, i: int) -> T:
        """Member i. Raises IndexError past the end."""

    @overload
    def __getitem__(self, i: int) -> T: ...
    @overload
    def __getitem__(self, i: slice) -> list[T]: ...
    def __getitem__(self, i: int | slice) -> T | list[T]:
        return [self.make(at) for at in range(len(self))[i]] if isinstance(i, slice) else self.make(i)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        raise TypeError("expected something to hash, got a list")


@dataclass(frozen=True, eq=False)
class Batches(OnDemand[list[int]]):
    """Batch i is order[bounds[turn[i]] : bounds[turn[i] + 1]]. Takes about 16 bytes an example."""

    __repr__ = brief

    order: np.ndarray
    bounds: np.ndarray
    turn: np.ndarray

    @classmethod
    def of_size(cls, order: np.ndarray, size: int) -> Self:
        """Batches of `size` examples in this order. The last may be smaller."""
        bounds = np.append(np.arange(0, len(order), size), len(order))
        return cls(order, bounds, np.arange(len(bounds) - 1))

    def __len__(self) -> int:
        return len(self.turn)

    def make(self, i: int) -> list[int]:
        at = int(self.turn[i])
        return self.order[self.bounds[at] : self.bounds[at + 1]].tolist()


def token_budget_batches(
    lengths: Sequence[int] | Sequence[tuple[int, int]] | np.ndarray, *, max_tokens: int, seed: int, epoch: int
) -> Batches:
    """Every example once, in batches of n * (longest source + longest target) <= max_tokens, in random order.

    `lengths` are an example's tokens as the network will see them, one number or (source, target). The budget
    counts padding, so it bounds memory too. Examples of similar length share a batch. A random shuffle and a
    first batch of random size make batches differ from epoch to epoch. Padding is under 5% with 100 or more
    batches. Raises UserError if one example alone exceeds the budget.
    """
    if not len(lengths):
        return Batches.of_size(np.empty(0, dtype=np.int64), 1)
    sizes = np.asarray(lengths, dtype=np.int64).reshape(len(lengths), -1)
    longest = int(sizes.sum(axis=1).max())
    if longest > max_tokens:
        raise UserError(
            f"max_tokens: expected at least {longest}, the tokens of the longest example, got {max_tokens};"
            " try a higher max_tokens or a lower max_length"
        )
    random = np.random.default_rng(key(seed, "batches", epoch))
    order = _by_length(sizes, random, max_tokens)
    bounds, n = [0], 0
    widest = [0] * sizes.shape[1]
    budget = int(max_tokens * random.uniform(0.5, 1.0))
    for at, size in enumerate(_in_turn(sizes, order)):
        wider = [max(pair) for pair in zip(widest, size, strict=True)]
        if n and (n + 1) * sum(wider) > budget:
            bounds.append(at)
            n, wider, budget = 0, size, max_tokens
        n += 1
        widest = wider
    bounds.append(len(order))
    return Batches(order, np.array(bounds), random.permutation(len(bounds) - 1))


def _in_turn(sizes: np.ndarray, order: np.ndarray) -> Iterator[Any]:
    """The sizes in this order."""
    for start in range(0, len(order), BLOCK):
        yield from sizes[order[start : start + BLOCK]].tolist()


def _by_length(sizes: np.ndarray, random: np.random.Generator, max_tokens: int) -> np.ndarray:
    """A random order sorted by length: targets ascend in one group of sources and descend in the next.

    The alternation keeps target lengths similar across the border of two groups. A group is one source length or
    several adjacent ones. There are about as many groups as batches in each group, which minimises padding.
    """
    shuffled = random.permutation(len(sizes))
    source, target = sizes[shuffled, 0], sizes[shuffled, -1]
    _, length, counts = np.unique(source, return_inverse=True, return_counts=True)
    n_groups = (sizes.sum() / max_tokens) ** 0.5
    group = ((counts.cumsum() - counts) / len(sizes) * n_groups).astype(np.int64)[length]
    return shuffled[np.lexsort((np.where(group % 2, -target, target), group))]


def windows(n_tokens: int, length: int, *, seed: int, epoch: int) -> np.ndarray:
    """Shuffled starts of windows of `length` inputs, whose targets (the next tokens) do not overlap.

    The phase is random, so windows cut the text in other places each epoch. An epoch leaves out fewer than
    2 * length tokens at the two ends. Raises UserError if the text is shorter than one window plus one token.
    """
    last = _last_start(n_tokens, length)
    random = np.random.default_rng(key(seed, "windows", epoch))
    phase = int(random.integers(0, min(length, last + 1)))
    return random.permutation(np.arange(phase, last + 1, length, dtype=np.int64))


def spans(n_tokens: int, length: int) -> list[tuple[int, int]]:
    """Windows [start, stop) in order that predict every token but the first exactly once, for evaluation.

    Inputs are tokens start ... stop-1, targets start+1 ... stop. The last window may be short.
    """
    return [(start, min(start + length, n_tokens - 1)) for start in range(0, n_tokens - 1, length)]


def _last_start(n_tokens: int, length: int) -> int:
    if n_tokens <= length:
        raise UserError(
            f"text: expected at least {length + 1} tokens for windows of {length}, got {n_tokens};"
            " try more text or a shorter context"
        )
    return n_tokens - length - 1


@dataclass(frozen=True, slots=True)
class DocumentSlice:
    """Tokens [start, stop) of one document."""

    document: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, eq=False)
class Rows(OnDemand[list[DocumentSlice]]):
    """Rows of pieces of documents. Takes about 40 bytes a piece."""

    __repr__ = brief

    pieces: np.ndarray
    """n 3: document, start, stop."""
    numbers: Batches
    """The indices into `pieces` for each row."""

    def __len__(self) -> int:
        return len(self.numbers)

    def make(self, i: int) -> list[DocumentSlice]:
        return [DocumentSlice(*piece) for piece in self.pieces[self.numbers.make(i)].tolist()]


def pack_documents(lengths: Sequence[int] | np.ndarray, width: int, *, seed: int, epoch: int, marks: int = 0) -> Rows:
    """Packs whole documents into rows of at most `width` tokens, and cuts longer ones into pieces of `width`.

    `marks` more tokens are around each piece, and count as its own.

    Best fit: pieces come longest first, in random order among equals, and go to the fullest row with room.
    Every token is in exactly one piece. Empty documents are in none. The rows are in random order.
    """
    random = np.random.default_rng(key(seed, "packing", epoch))
    pieces = pieces_of(np.asarray(lengths, dtype=np.int64), width - marks)
    shuffled = random.permutation(len(pieces))
    sizes = pieces[:, 2] - pieces[:, 1] + marks
    longest_first = shuffled[np.argsort(-sizes[shuffled], kind="stable")]
    row_of = np.empty(len(pieces), dtype=np.int64)
    n_rows = 0
    # Rows by their free room. `rooms` holds the distinct values sorted, so one bisection finds the best fit.
    by_room: dict[int, list[int]] = {}
    rooms: list[int] = []
    for at, size in enumerate(_in_turn(sizes, longest_first)):
        fit = bisect_left(rooms, size)
        if fit < len(rooms):
            room = rooms[fit]
            row = by_room[room].pop()
            if not by_room[room]:
                del by_room[room], rooms[fit]
        else:
            room, row = width, n_rows
            n_rows += 1
        row_of[at] = row
        left = room - size
        if left:
            if left not in by_room:
                by_room[left] = []
                rooms.insert(bisect_left(rooms, left), left)
            by_room[left].append(row)
    order = longest_first[np.argsort(row_of, kind="stable")]
    bounds = np.append(0, np.bincount(row_of, minlength=n_rows).cumsum())
    return Rows(pieces, Batches(order, bounds, random.permutation(n_rows)))


def pieces_of(lengths: np.ndarray, width: int) -> np.ndarray:
    """n 3: document, start, stop of every piece, in order."""
    counts = -(-lengths // width)
    document = np.repeat(np.arange(len(lengths)), counts)
    start = (np.arange(len(document)) - np.repeat(counts.cumsum() - counts, counts)) * width
    return np.stack([document, start, np.minimum(start + width, lengths[document])], axis=1)
