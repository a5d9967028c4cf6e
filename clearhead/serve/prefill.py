"""Prompts that are being read: several in one pass, or a long one in pieces, after the beginnings that are known."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from clearhead.brief import brief
from clearhead.model import Tokens, Transformer
from clearhead.model.cache import Cache
from clearhead.model.layout import Layout
from clearhead.model.transformer import Stack
from clearhead.serve.texts import Prompt, Scored, Update, scored, steered
from clearhead.serve.worker import Ticket
from clearhead.trace import untraced

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
        """Keeps nothing if `most_bytes` is 0. `block` is the number of tokens of a block."""
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


AT_ONCE = 512
"""Tokens of several prompts, padding included, that the engine reads in one pass."""
PIECE = 128
"""Tokens of one prompt that the engine reads between two steps. Fewer slow the prompt, more delay other texts."""
FIXED_PIECE = 64
"""The same where every prompt must be cut at the same places, known beginnings included. More share less."""
SCORED_AT_ONCE = 128
"""Positions of a prompt whose logits are in memory at once."""


class Prefill:
    """The prefill of some prompts, which begin with the same known tokens or with none."""

    def __init__(
        self,
        network: Transformer,
        prefixes: Prefixes,
        arrivals: Sequence[tuple[Ticket[Update], Prompt]],
        *,
        piece: int | None = None,
    ) -> None:
        """`piece` is how many tokens of a prompt that is read alone are read at once (default: `PIECE`)."""
        self.network, self.prefixes, self.arrivals, self.piece = network, prefixes, arrivals, piece or PIECE
        self.prompts = [prompt for _, prompt in arrivals]
        self.longest = max(len(prompt.ids) for prompt in self.prompts)
        self.past: Cache = network.new_cache()
        self.n_known = prefixes.block * len(known(prefixes, self.prompts[0]))
        """Tokens at the beginning whose keys and values were there already."""
        self.n_read = self.n_known
        """Tokens that are behind it."""
        self.scores: list[list[Scored]] = [[(None, [])] for _ in arrivals]
        """For each prompt whose log-probabilities are asked for: those of its tokens. The first token has none."""

    @property
    def tickets(self) -> list[Ticket[Update]]:
        """The tickets of its prompts."""
        return [ticket for ticket, _ in self.arrivals]

    @property
    def is_gone(self) -> bool:
        """True if the clients of all its prompts have hung up."""
        return all(ticket.is_gone for ticket in self.tickets)

    @property
    def n_texts(self) -> int:
        """Slots that its texts will need."""
        return sum(prompt.n for prompt in self.prompts)

    @property
    def n_left(self) -> int:
        """Tokens left to read, padding included, and those of a pass that has begun."""
        return len(self.arrivals) * (self.longest - self.n_read)

    def read(self, meanwhile: Callable[[], None]) -> Tensor | None:
        """Reads the next tokens of each prompt -> n v: the logits after each, once all have been read.

        A piece of a long prompt calls `meanwhile` between two blocks of the network.
        """
        if not self.past.length:  # Not earlier, because others may have read the same meanwhile.
            self.n_known = self.n_read = self.share()
        start, size = self.past.length, self.piece if len(self.arrivals) == 1 else AT_ONCE
        pictures, grids = self.prompts[0].pictures, self.prompts[0].grids
        size = size if pictures is None else self.longest
        pieces = [prompt.ids[start : start + size] for prompt in self.prompts]
        decoder = self.network.decoder
        assert decoder is not None
        tokens = replace(Tokens.pad(pieces, packed=not start), pictures=pictures, grids=grids).to(decoder.device)
        tokens = self.network.see(tokens)
        with steered(self.network, [prompt.steering for prompt in self.prompts], tokens), between(decoder, meanwhile):
            states, layout = decoder(tokens, None, self.past)
        self.n_read = self.past.length
        states = layout.trim(states) if states.dim() == 2 else layout.real(states)
        of_each = states.split([len(piece) for piece in pieces])
        for prompt, own, scores in zip(self.prompts, of_each, self.scores, strict=True):
            if prompt.scores_prompt:
                scores += self.score(own, prompt.ids[start + 1 : start + 1 + len(own)], layout, prompt.likeliest or 0)
        if start + size < self.longest:
            return None
        return self.network.head(torch.stack([own[-1] for own in of_each]), layout)

    def share(self) -> int:
        """Begins with what is known already -> its tokens."""
        stack = self.network.last_stack.config
        shared = common([known(self.prefixes, prompt) for prompt in self.prompts])
        begin(self.past, shared, len(self.prompts), (stack.head_width, stack.value_width))
        return self.past.length

    def score(self, states: Tensor, following: Sequence[int], layout: Layout, n_likeliest: int) -> list[Scored]:
        """The scores of the tokens that follow these states, except after the prompt's last."""
        found: list[Scored] = []
        for at in range(0, len(following), SCORED_AT_ONCE):
            part = following[at : at + SCORED_AT_ONCE]
            found += scored(self.network.head(states[at : at + len(part)], layout), part, n_likeliest)
        return found


def known(prefixes: Prefixes, prompt: Prompt) -> list[Block]:
    """The beginning of a prompt that need not be read again."""
    return [] if prompt.scores_prompt or prompt.pictures is not None else prefixes.match(prompt.steering, prompt.ids)


@contextmanager
def between(stack: Stack, call: Callable[[], None]) -> Iterator[None]:
    """Calls a function between two blocks of each pass. No edit of the pass reaches what the function computes."""

    def pause(*_: object) -> None:
        with untraced():
            call()

    handles = [block.register_forward_pre_hook(pause) for block in stack.blocks]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
