"""Which examples go together, in which order: a function of (seed, epoch) alone. Imports no torch.

A plan is indices and offsets, never text; equal arguments give equal plans wherever numpy is the same.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clearhead.errors import UserError
from clearhead.randomness import key


def token_budget_batches(
    lengths: Sequence[int] | Sequence[tuple[int, int]], *, max_tokens: int, seed: int, epoch: int
) -> list[list[int]]:
    """Every example once, in batches of n * (longest source + longest target) <= max_tokens, in random order.

    `lengths` are an example's tokens as the network will see them, one number or (source, target). The budget
    counts padding, so it bounds memory too. Examples of like lengths go together, after a random shuffle and
    with a first batch of random size, so that batches differ from epoch to epoch. Padding is under 5% from
    some 100 batches on. Raises UserError where one example alone is over the budget.
    """
    if not len(lengths):
        return []
    sizes = np.asarray(lengths, dtype=np.int64).reshape(len(lengths), -1)
    longest = int(sizes.sum(axis=1).max())
    if longest > max_tokens:
        raise UserError(
            f"max_tokens: expected at least {longest}, the tokens of the longest example, got {max_tokens};"
            " try a higher max_tokens or a lower max_length"
        )
    random = np.random.default_rng(key(seed, "batches", epoch))
    order = _by_length(sizes, random, max_tokens)
    batches: list[list[int]] = []
    batch: list[int] = []
    widest = [0] * sizes.shape[1]
    budget = int(max_tokens * random.uniform(0.5, 1.0))
    for index, size in zip(order.tolist(), sizes[order].tolist(), strict=True):
        wider = [max(pair) for pair in zip(widest, size, strict=True)]
        if batch and (len(batch) + 1) * sum(wider) > budget:
            batches.append(batch)
            batch, wider, budget = list[int](), size, max_tokens
        batch.append(index)
        widest = wider
    batches.append(batch)
    return [batches[i] for i in random.permutation(len(batches))]


def _by_length(sizes: np.ndarray, random: np.random.Generator, max_tokens: int) -> np.ndarray:
    """A random order sorted by length: targets ascend in one group of sources and descend in the next.

    The turns keep the targets alike where one group of sources ends and the next begins. A group is one
    source length or several neighbours, about as many groups as each has batches, which leaves the least
    padding.
    """
    shuffled = random.permutation(len(sizes))
    source, target = sizes[shuffled, 0], sizes[shuffled, -1]
    _, length, counts = np.unique(source, return_inverse=True, return_counts=True)
    n_groups = (sizes.sum() / max_tokens) ** 0.5
    group = ((counts.cumsum() - counts) / len(sizes) * n_groups).astype(np.int64)[length]
    return shuffled[np.lexsort((np.where(group % 2, -target, target), group))]


def windows(n_tokens: int, length: int, *, seed: int, epoch: int) -> np.ndarray:
    """Shuffled starts of windows of `length` inputs, whose targets (the next tokens) do not overlap.

    The phase is random, so windows cut the text elsewhere each epoch; fewer than 2 * length tokens, at the
    two ends, are left out of an epoch. Raises UserError where the text is shorter than one window and the
    token after it.
    """
    last = _last_start(n_tokens, length)
    random = np.random.default_rng(key(seed, "windows", epoch))
    phase = int(random.integers(0, min(length, last + 1)))
    return random.permutation(np.arange(phase, last + 1, length, dtype=np.int64))


def spans(n_tokens: int, length: int) -> list[tuple[int, int]]:
    """Windows [start, stop) in order that predict every token but the first exactly once, for evaluation.

    Inputs are tokens start ... stop-1, targets start+1 ... stop; the last window may be short.
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
class Piece:
    """Tokens [start, stop) of one document."""

    document: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


def pack_documents(lengths: Sequence[int], width: int, *, seed: int, epoch: int) -> list[list[Piece]]:
    """Rows of at most `width` tokens, of whole documents; longer ones are cut into pieces of `width`.

    Best fit: each piece, in random order but long before short, goes to the fullest row that has room for it.
    Every token is in exactly one piece; empty documents are in none. The rows are in random order.
    """
    random = np.random.default_rng(key(seed, "packing", epoch))
    pieces = [
        Piece(document, start, min(start + width, n_tokens))
        for document, n_tokens in enumerate(lengths)
        for start in range(0, n_tokens, width)
    ]
    shuffled = [pieces[i] for i in random.permutation(len(pieces))]
    rows: list[list[Piece]] = []
    # Rows by the room left in them; `rooms` has the distinct values sorted: the best fit is one bisection.
    by_room: dict[int, list[list[Piece]]] = {}
    rooms: list[int] = []
    longest_first: list[Piece] = sorted(shuffled, key=lambda piece: piece.stop - piece.start, reverse=True)
    for piece in longest_first:
        at = bisect_left(rooms, len(piece))
        if at < len(rooms):
            room = rooms[at]
            row = by_room[room].pop()
            if not by_room[room]:
                del by_room[room], rooms[at]
        else:
            room, row = width, list[Piece]()
            rows.append(row)
        row.append(piece)
        left = room - len(piece)
        if left:
            if left not in by_room:
                by_room[left] = []
                rooms.insert(bisect_left(rooms, left), left)
            by_room[left].append(row)
    return [rows[i] for i in random.permutation(len(rows))]
