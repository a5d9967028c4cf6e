"""Prompts that are being read: several in one pass, or a long one in pieces."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from clearhead.model import Tokens, Transformer
from clearhead.model.cache import Cache
from clearhead.model.layout import Layout
from clearhead.model.transformer import Stack
from clearhead.serve.choosing import Scored, scored
from clearhead.serve.edits import steered
from clearhead.serve.prefixes import Block, Prefixes, begin, common
from clearhead.serve.worker import Ticket
from clearhead.serve.writing import Prompt, Update
from clearhead.trace import untraced

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
        """Whether all its clients have hung up."""
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
        pieces = [prompt.ids[start : start + size] for prompt in self.prompts]
        decoder = self.network.decoder
        assert decoder is not None
        tokens = Tokens.pad(pieces, packed=not start).to(decoder.device)
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
    return [] if prompt.scores_prompt else prefixes.match(prompt.edits, prompt.ids)


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
