"""Keys and values of earlier texts, which a prompt that begins like one of them need not compute again.

Blocks of tokens in a tree of prefixes, the least recently used of which goes first: RadixAttention (Zheng et al. 2024,
SGLang, section 3) with the blocks of one size of PagedAttention (Kwon et al. 2023, vLLM, section 4).
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from clearhead.brief import brief
from clearhead.model.cache import Cache

BLOCK = 16
"""Tokens of a block, unless another number is asked for. Fewer share more and take more tensors."""

Name = tuple[Hashable, tuple[int, ...]]
"""A block beneath its parent: the edits that its values were computed under, and its tokens."""


@dataclass(eq=False)
class Block:
    """The keys and values of a block of tokens, after those of its parents."""

    __repr__ = brief

    name: Name
    parent: "Block | None" = None
    cells: Tensor | None = None
    """layer 2 h s k: keys and values; None for the root."""
    children: "dict[Name, Block]" = field(default_factory=dict)


class Prefixes:
    """Keys and values by the tokens that they follow from, up to a number of bytes."""

    def __init__(self, most_bytes: int, *, block: int = BLOCK) -> None:
        """With 0 bytes nothing is kept. `block` is the number of tokens of a block."""
        self.most_bytes, self.n_bytes, self.block = most_bytes, 0, block
        self.root = Block((None, ()))
        self.recent: OrderedDict[Block, None] = OrderedDict()
        """All blocks, the least recently used first. A parent is always more recent than its children."""

    def match(self, edits: Hashable, ids: Sequence[int]) -> list[Block]:
        """The longest known beginning of a prompt. Leaves one token or more, from which the next one follows."""
        found, block = list[Block](), self.root
        for name in self._names(edits, ids[:-1]):
            child = block.children.get(name)
            if child is None:
                break
            found.append(block := child)
        self._use(found)
        return found

    def keep(self, edits: Hashable, ids: Sequence[int], cells: Tensor) -> None:
        """Copies the whole blocks of a text that are not known yet from its cells, layer 2 h s k."""
        size = self.block
        n_bytes = cells[..., :1, :].numel() * size * cells.element_size()
        found, block = list[Block](), self.root
        for i, name in enumerate(self._names(edits, ids[: self.most_bytes // n_bytes * size])):
            child = block.children.get(name)
            if child is None:
                own = cells[..., i * size : (i + 1) * size, :].clone()
                child = block.children[name] = Block(name, block, own)
                self.n_bytes += n_bytes
            found.append(block := child)
        self._use(found)
        while self.n_bytes > self.most_bytes:
            self._forget(next(iter(self.recent)))

    def clear(self) -> None:
        """Frees all blocks."""
        self.root.children.clear()
        self.recent.clear()
        self.n_bytes = 0

    def _names(self, edits: Hashable, ids: Sequence[int]) -> Iterator[Name]:
        for at in range(0, len(ids) - self.block + 1, self.block):
            yield edits, tuple(ids[at : at + self.block])

    def _use(self, blocks: Sequence[Block]) -> None:
        for block in reversed(blocks):
            self.recent[block] = None
            self.recent.move_to_end(block)

    def _forget(self, block: Block) -> None:
        assert block.parent is not None
        assert block.cells is not None
        assert not block.children, "a parent is more recent than its children"
        del self.recent[block], block.parent.children[block.name]
        self.n_bytes -= block.cells.numel() * block.cells.element_size()


def common(several: Sequence[Sequence[Block]]) -> list[Block]:
    """The blocks with which all of these begin."""
    return [blocks[0] for blocks in zip(*several, strict=False) if all(block is blocks[0] for block in blocks)]


def begin(past: Cache, blocks: Sequence[Block], n_rows: int, widths: tuple[int, int]) -> None:
    """Makes these blocks the beginning of every row of an empty cache, for keys and values of these widths."""
    if not blocks:
        return
    cells = torch.cat([block.cells for block in blocks if block.cells is not None], -2)
    for (k, v), layer in zip(cells, past.blocks, strict=True):
        sides = (side[..., :width].expand(n_rows, -1, -1, -1) for side, width in zip((k, v), widths, strict=True))
        layer.attn.k, layer.attn.v = sides
    past.length = cells.shape[-2]
