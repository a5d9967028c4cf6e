"""Continuous batching: texts join and leave the batch between two steps, and each step writes a token of each.

The scheduling of Yu et al. 2022 (Orca), section 3.1, an iteration at a time; the cache is of plain rows.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.data.detokenizer import Detokenizer
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import is_memory
from clearhead.model import Tokens, Transformer
from clearhead.model.cache import Cache
from clearhead.model.layout import Layout
from clearhead.model.mode import Evaluating
from clearhead.model.packing import packed
from clearhead.model.transformer import Stack
from clearhead.serve.choosing import Scored, choose, scored
from clearhead.serve.edits import steered
from clearhead.serve.slots import Slots
from clearhead.serve.worker import INTERNAL, Failed, Ticket, Worker
from clearhead.serve.writing import Prompt, ScoredToken, Update, Writing

_log = logging.getLogger("clearhead")

AT_ONCE = 512
"""Tokens of several prompts, padding included, that the engine reads between two steps."""
PIECE = 128
"""Tokens of one prompt that the engine reads between two steps. Fewer slow the prompt, more delay other texts."""
SCORED_AT_ONCE = 128
"""Positions of a prompt whose logits are in memory at once."""


@dataclass
class Prefill:
    """The prefill of prompts: several in one pass, or a long one in pieces."""

    arrivals: list[tuple[Ticket[Update], Prompt]]
    past: Cache
    scores: list[list[Scored]]
    """For each prompt whose log-probabilities are asked for: those of its tokens. The first token has none."""


class Engine(Worker[Prompt, Update]):
    """Owns a decoder: reads waiting prompts while there are slots, then writes a token of each running text."""

    def __init__(
        self, network: Transformer, tokenizer: Tokenizer, *, slots: int, most_cells: int, most_waiting: int
    ) -> None:
        super().__init__(most_waiting=most_waiting)
        assert network.decoder is not None
        assert network.encoder is None
        self.network, self.tokenizer = packed(network, rows=slots), tokenizer
        self.evaluating = Evaluating(self.network)
        self.device = network.decoder.table.weight.device
        self.slots = Slots(len(network.decoder.blocks), most_rows=slots, most_cells=most_cells)
        self.reading: Prefill | None = None
        self.rows: list[Writing] = []

    @property
    def decoder(self) -> Stack:
        """The network's only stack."""
        assert self.network.decoder is not None
        return self.network.decoder

    @property
    def under_way(self) -> Sequence[Ticket[Update]]:
        reading = self.reading  # read once, because other threads ask too
        read = [] if reading is None else [ticket for ticket, _ in reading.arrivals]
        return [*read, *(row.ticket for row in self.rows)]

    def turn(self) -> None:
        """Removes rows whose clients have hung up, reads prompts for a while, and writes a token in every row."""
        with self.evaluating:
            self._turn()

    def _turn(self) -> None:
        self.drop([i for i, row in enumerate(self.rows) if row.ticket.is_gone])
        if self.reading is None or all(ticket.is_gone for ticket, _ in self.reading.arrivals):
            arrivals = self.take(self.fits)
            scores: list[list[Scored]] = [[(None, [])] for _ in arrivals]
            self.reading = Prefill(arrivals, self.network.new_cache(), scores) if arrivals else None
        if self.reading is not None:
            arrivals = self.reading.arrivals
            try:
                self.read(self.reading)
            except Exception as error:
                self.fail([ticket for ticket, _ in arrivals], _reason(error))
                self.drop([i for i, row in enumerate(self.rows) if row.ticket.is_gone])
            self.post()
        if self.rows:
            try:
                self.write(self.step())
            except Exception as error:
                self.fail(self.under_way, _reason(error))
                self.rows = []
                self.slots.clear()

    def fits(self, taken: list[Prompt], prompt: Prompt) -> bool:
        """Whether a prompt can be read together with these and there are slots for its texts."""
        together = [*taken, prompt]
        if len(self.rows) + sum(one.n for one in together) > self.slots.most_rows:
            return False
        return not taken or len(together) * max(len(one.ids) for one in together) <= AT_ONCE

    def read(self, reading: Prefill) -> None:
        """Prefill: reads the next tokens of each prompt. Prompts that have been read completely join the batch."""
        start, size = reading.past.length, PIECE if len(reading.arrivals) == 1 else AT_ONCE
        pieces = [prompt.ids[start : start + size] for _, prompt in reading.arrivals]
        tokens = Tokens.pad(pieces, packed=True).to(self.device)
        with steered(self.network, [prompt.steering for _, prompt in reading.arrivals], tokens):
            states, layout = self.decoder(tokens, None, reading.past)
        states = layout.trim(states) if states.dim() == 2 else states.flatten(0, 1)
        of_each = states.split([len(piece) for piece in pieces])
        for (_, prompt), own, scores in zip(reading.arrivals, of_each, reading.scores, strict=True):
            if prompt.scores_prompt:
                following = prompt.ids[start + 1 : start + 1 + len(own)]
                scores += self.score(own, following, layout, prompt.likeliest or 0)
        if start + size >= max(len(prompt.ids) for _, prompt in reading.arrivals):
            self.reading = None
            self.begin(reading, self.network.head(torch.stack([own[-1] for own in of_each]), layout))

    def score(self, states: Tensor, following: Sequence[int], layout: Layout, n_likeliest: int) -> list[Scored]:
        """The scores of the tokens that follow these states, except after the prompt's last."""
        found: list[Scored] = []
        for at in range(0, len(following), SCORED_AT_ONCE):
            part = following[at : at + SCORED_AT_ONCE]
            found += scored(self.network.head(states[at : at + len(part)], layout), part, n_likeliest)
        return found

    def begin(self, read: Prefill, logits: Tensor) -> None:
        """Adds prefilled sequences to the batch and samples their first token."""
        new: list[Writing] = []
        parents: list[int] = []
        for i, ((ticket, prompt), scores) in enumerate(zip(read.arrivals, read.scores, strict=True)):
            tokens = self.prompt_tokens(prompt, scores) if prompt.scores_prompt else []
            for sample in range(prompt.n):
                row = Writing(ticket, prompt, sample, Detokenizer(self.tokenizer, prompt.ids, prompt.stop))
                row.scored = tokens
                new.append(row)
                parents.append(i)
        self.slots.join(read.past, parents, [len(row.prompt.ids) for row in new])
        first, self.rows = len(self.rows), self.rows + new
        self.write(logits[torch.tensor(parents, device=self.device)], first=first)

    def prompt_tokens(self, prompt: Prompt, scores: Sequence[Scored]) -> list[ScoredToken]:
        """The prompt's tokens with their places and log-probabilities."""
        detokenizer, offsets = Detokenizer(self.tokenizer, []), list[int]()
        for token in prompt.ids:
            offsets.append(len(detokenizer.settled))
            detokenizer.add([token])
        return [ScoredToken(token, at, *score) for token, at, score in zip(prompt.ids, offsets, scores, strict=True)]

    def step(self) -> Tensor:
        """Runs the last token of every row through the network -> n v: the logits of the next token."""
        last = Tokens(torch.tensor([[row.written[-1]] for row in self.rows], device=self.device))
        with steered(self.network, [row.prompt.steering for row in self.rows], last):
            return self.network.decode(last, None, self.slots)[:, -1]

    def write(self, logits: Tensor, *, first: int = 0) -> None:
        """Samples a token per row from `first` on, removes finished rows and notifies clients."""
        rows = self.rows[first:]
        tokens = choose(logits, rows)
        scores = self.scores(logits, rows, tokens)
        for i, (row, token) in enumerate(zip(rows, tokens, strict=True)):
            if row.ticket.is_gone:
                continue
            if token is None:
                self.slots.forget(first + i)
                self.fail([row.ticket], Failed(500, "the network's numbers are not finite; try --dtype float32"))
                continue
            if row.prompt.limit == 0:
                row.reason = "length"
            else:
                row.add(token, *scores.get(i, (None, [])))
            if (update := row.update()) is not None:
                self.tell(row.ticket, update)
        self.drop([i for i, row in enumerate(self.rows) if row.reason is not None or row.ticket.is_gone])

    def scores(self, logits: Tensor, rows: Sequence[Writing], tokens: Sequence[int | None]) -> dict[int, Scored]:
        """Log-probabilities for the rows that ask for them."""
        wants = [i for i, row in enumerate(rows) if row.prompt.likeliest is not None]
        if not wants:
            return {}
        most = max(rows[i].prompt.likeliest or 0 for i in wants)
        found = scored(logits[torch.tensor(wants, device=self.device)], [tokens[i] or 0 for i in wants], most)
        return {
            i: (log_prob, likeliest[: rows[i].prompt.likeliest])
            for i, (log_prob, likeliest) in zip(wants, found, strict=True)
        }

    def drop(self, leaving: Sequence[int]) -> None:
        """Frees the slots of these rows; the last rows move into them."""
        for i in reversed(leaving):
            self.slots.leave(i)
            self.rows[i] = self.rows[-1]
            self.rows.pop()


def _reason(error: Exception) -> Failed:
    """The message of an internal error."""
    if is_memory(error):
        _log.warning("Out of memory: try fewer --slots or a lower --max-length")
        return Failed(503, "out of memory; try again in a moment, or a shorter prompt")
    _log.error("The server could not write", exc_info=error)
    return Failed(500, INTERNAL)
