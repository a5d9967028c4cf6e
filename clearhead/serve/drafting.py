"""Speculative decoding in the server: guesses of the next tokens while one text is written alone.

Several texts fill a pass by themselves, so guesses then rest. They are made again when one text is left.
"""

from collections.abc import Sequence

from torch import Tensor

from clearhead.generation.generate import Draft
from clearhead.generation.speculation import Drafter, LookupDrafter, NetworkDrafter, Pace, Speculation
from clearhead.model import Tokens, Transformer
from clearhead.model.fast.packing import packed
from clearhead.model.fast.snapshot import Snapshot
from clearhead.serve.slots import Slots
from clearhead.serve.texts import Writing

PIECE = 128
"""Tokens of a text that a draft reads between two steps."""


class FirstRow:
    """Reads tokens into the only row in use (`generation.speculation.Reader`)."""

    is_fast = True

    def __init__(self, network: Transformer, slots: Slots) -> None:
        self.network, self.slots = network, slots

    @property
    def n_read(self) -> int:
        """Filled cells of the row."""
        return self.slots.lengths[0]

    def cut(self, n: int) -> None:
        """Keeps the first n cells. What follows them may be filled with guesses."""
        self.slots.lengths[0] = n

    def logits(self, tokens: Tokens, last: int) -> Tensor:
        """1 t -> 1 last v: the logits after each of the last tokens."""
        return self.network.decode(tokens, None, self.slots)[:, -last:]


class Drafting:
    """Writes a text that is alone in its batch with the guesses of a draft."""

    def __init__(self, network: Transformer, slots: Slots, draft: Draft, snapshot: Snapshot | None) -> None:
        assert network.decoder is not None
        decoder = network.decoder
        self.reader, self.vocab_size = FirstRow(network, slots), decoder.lookup.num_embeddings
        self.device, self.snapshot = decoder.device, snapshot
        self.draft: Draft = draft if isinstance(draft, str) else packed(draft)
        self.pace = Pace()
        """How long passes and guesses take, and how often guesses are right: learned from one text for the next."""

    def step(self, rows: Sequence[Writing]) -> Tensor | None:
        """1 v: the logits after the last token of a text that is alone; None if guesses rest."""
        row = rows[0]
        if len(rows) > 1 or not row.prompt.drafts:
            for one in rows:
                if one.ahead is not None:
                    one.ahead.waiting.clear()
            return None
        if row.ahead is None:
            limit = row.prompt.limit
            row.ahead = Speculation(
                self.reader, self.drafter(row), limit=limit, repeats=False, pace=self.pace, snapshot=self.snapshot
            )
        row.ahead.n_read = self.reader.n_read  # Other steps may have read on.
        logits = row.ahead.feed(row.history(self.device))
        self.reader.cut(row.ahead.n_read)  # So that cells of guesses count only once they are known to be right.
        return logits

    def drafter(self, row: Writing) -> Drafter:
        """What guesses the tokens of a text."""
        if isinstance(self.draft, str):
            return LookupDrafter()
        return NetworkDrafter(self.draft, row.sampler, row.name, vocab_size=self.vocab_size, piece=PIECE)
