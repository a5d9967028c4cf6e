"""Continuous batching: texts join and leave the batch between two steps, and each step writes a token of each.

The scheduling of Yu et al. 2022 (Orca), section 3.1, an iteration at a time; the cache is of plain rows.
"""

import logging
from collections.abc import Sequence
from itertools import islice

import torch
from torch import Tensor

from clearhead.errors import UserError, is_memory
from clearhead.generation import Draft
from clearhead.model import Tokens, Transformer
from clearhead.model.fast.packing import packed
from clearhead.model.fast.snapshot import Snapshot, obstacle, watching
from clearhead.model.mode import Evaluating
from clearhead.serve.drafting import Drafting
from clearhead.serve.prefill import AT_ONCE, BLOCK, FIXED_PIECE, Prefill, Prefixes, known
from clearhead.serve.slots import Slots, SlotsApart
from clearhead.serve.texts import Prompt, Scored, ScoredToken, Update, Writing, choose, scored, steered
from clearhead.serve.worker import INTERNAL, Failed, Ticket, Worker
from clearhead.text.detokenizer import Detokenizer
from clearhead.text.tokenizers import Tokenizer

_log = logging.getLogger("clearhead")

SHORTER = 4
"""Prompts interrupt the reading of one that has this many times as many tokens left."""


class Engine(Worker[Prompt, Update]):
    """Owns a decoder: reads waiting prompts while there are slots, then writes a token of each running text."""

    def __init__(
        self,
        network: Transformer,
        tokenizer: Tokenizer,
        *,
        slots: int,
        most_cells: int,
        most_waiting: int,
        prefix_bytes: int = 0,
        draft: Draft | None = None,
        is_deterministic: bool = False,
    ) -> None:
        """`prefix_bytes` is for the keys and values of earlier texts. `draft` guesses tokens of a text alone.

        `is_deterministic` gives a text the same numbers whoever else is there, and excludes a draft. Each prompt is
        then read alone in pieces of `FIXED_PIECE`, and each text is written in passes of its own.
        """
        super().__init__(most_waiting=most_waiting)
        assert network.decoder is not None
        assert network.encoder is None
        assert draft is None or not is_deterministic
        self.given, self.tokenizer, self.is_deterministic = network, tokenizer, is_deterministic
        self.evaluating = Evaluating(network)
        self.device = network.decoder.device
        together = Slots(len(network.decoder.blocks), most_rows=slots, most_cells=most_cells)
        apart = SlotsApart(len(network.decoder.blocks), most_rows=slots, most_cells=most_cells)
        self.slots = apart if is_deterministic else together
        self.prefix_bytes, self.prefixes = prefix_bytes, Prefixes(0, block=FIXED_PIECE if is_deterministic else BLOCK)
        self.piece = FIXED_PIECE if is_deterministic else None
        self.reading: list[Prefill] = []
        """In the order of their coming."""
        self.reads_oldest = False
        self.rows: list[Writing] = []
        self.look()
        self.drafting = None if draft is None else Drafting(self.network, together, draft, self.snapshot)

    def look(self) -> None:
        """Uses the network in its present state, with packed matrices and prefixes only if its code may be skipped."""
        # Packing is a choice by time, which another start may decide otherwise.
        self.network = self.given if self.is_deterministic else packed(self.given, rows=self.slots.most_rows)
        self.prefixes.clear()
        self.prefixes.most_bytes, self.snapshot = 0, None
        if obstacle(self.given) is None:
            first = Tokens(torch.zeros(1, 1, dtype=torch.long, device=self.device))
            with self.evaluating, torch.inference_mode(), watching(self.given) as code:
                self.network.decode(first, None, self.network.new_cache())
            if code.obstacle is None:
                # A prefix is cells of keys and values, which states do not have.
                self.prefixes.most_bytes = 0 if self.given.keeps_states else self.prefix_bytes
                self.snapshot = Snapshot(self.given, self.given.parameters(), code.namespaces)

    def change(self) -> None:
        """Looks again, for the network is no longer what matrices and prefixes were made of."""
        self.look()
        for reading in self.reading:
            reading.network = self.network
        if self.drafting is not None:
            self.drafting.reader.network, self.drafting.snapshot = self.network, self.snapshot
        for row in self.rows:
            row.ahead = None

    @property
    def under_way(self) -> Sequence[Ticket[Update]]:
        read = [ticket for reading in self.reading.copy() for ticket in reading.tickets]  # Other threads ask too.
        return [*read, *(row.ticket for row in self.rows)]

    def turn(self) -> None:
        """Removes texts whose clients have hung up, reads prompts for a while, and writes a token in every row.

        Of the prompts that are being read, those with the fewest tokens left and those that came first take turns, so
        that short ones wait little and long ones not for ever.
        """
        if self.snapshot is not None and not self.snapshot.holds():
            self.change()
        with self.evaluating:
            self.drop([i for i, row in enumerate(self.rows) if row.ticket.is_gone])
            self.reading = [one for one in self.reading if not one.is_gone]
            while arrivals := self.take(self.fits):
                self.reading.append(Prefill(self.network, self.prefixes, arrivals, piece=self.piece))
            if self.reading:
                self.reads_oldest = not self.reads_oldest
                self.read(self.reading[0] if self.reads_oldest else min(self.reading, key=lambda one: one.n_left))
            if self.rows:
                try:
                    self.write(self.step())
                except Exception as error:
                    self.fail(self.under_way, self.reason(error))
                    self.reading.clear()
                    self.rows.clear()
                    self.slots.clear()

    def fits(self, taken: list[Prompt], prompt: Prompt) -> bool:
        """Returns True if a prompt can be read together with these, and slots are left for its texts."""
        together = [*taken, prompt]
        n_texts = len(self.rows) + sum(one.n_texts for one in self.reading) + sum(one.n for one in together)
        if n_texts > self.slots.most_rows:
            return False
        if not taken or self.is_deterministic or any(one.pictures is not None for one in together):
            return not taken
        first, own = (known(self.prefixes, one) for one in (taken[0], prompt))
        return first == own and self.unread(together) <= AT_ONCE

    def unread(self, prompts: Sequence[Prompt]) -> int:
        """Tokens to read of prompts that begin with the same known ones, padding included."""
        n_known = self.prefixes.block * len(known(self.prefixes, prompts[0]))
        return len(prompts) * (max(len(one.ids) for one in prompts) - n_known)

    def read(self, reading: Prefill) -> None:
        """Prefill: reads the next tokens of each prompt. Prompts that have been read completely join the batch."""

        def meanwhile() -> None:
            most = (reading.longest - reading.n_read) // SHORTER
            arrivals = self.take(lambda taken, one: self.fits(taken, one) and self.unread([*taken, one]) <= most)
            if arrivals:
                self.reading.append(shorter := Prefill(self.network, self.prefixes, arrivals, piece=self.piece))
                while shorter in self.reading and not shorter.is_gone:
                    self.read(shorter)

        try:
            if (logits := reading.read(meanwhile)) is not None:
                self.reading.remove(reading)
                self.begin(reading, logits)
        except Exception as error:
            self.reading = [one for one in self.reading if one is not reading]
            self.fail(reading.tickets, self.reason(error))
            self.drop([i for i, row in enumerate(self.rows) if row.ticket.is_gone])
        self.post()

    def begin(self, read: Prefill, logits: Tensor) -> None:
        """Adds prefilled sequences to the batch and samples their first token."""
        new: list[Writing] = []
        parents: list[int] = []
        for i, ((ticket, prompt), scores) in enumerate(zip(read.arrivals, read.scores, strict=True)):
            tokens = self.prompt_tokens(prompt, scores) if prompt.scores_prompt else []
            for sample in range(prompt.n):
                detokenizer = Detokenizer(self.tokenizer, prompt.ids, prompt.stop)
                row = Writing(ticket, prompt, sample, detokenizer, n_known=read.n_known)
                row.scored = tokens
                new.append(row)
                parents.append(i)
        self.slots.join(read.past, parents, [len(row.prompt.ids) for row in new])
        first, self.rows = len(self.rows), self.rows + new
        logits = logits[torch.tensor(parents, device=self.device)]
        for i, is_finite in enumerate(logits.amax(-1).isfinite().tolist(), first):
            if is_finite:
                self.keep(i)
        self.write(logits, first=first)

    def keep(self, i: int) -> None:
        """Keeps the keys and values of a row for prompts that begin alike, if there is memory."""
        prompt, written = self.rows[i].prompt, self.rows[i].written
        if prompt.pictures is not None:
            return
        # A prompt that goes on with what was written would read it in pieces.
        ids = prompt.ids if self.is_deterministic else [*prompt.ids, *written][: self.slots.lengths[i]]
        try:
            self.prefixes.keep(prompt.steering, ids, self.slots.read(i))
        except Exception as error:
            if not is_memory(error):
                raise
            self.prefixes.clear()

    def prompt_tokens(self, prompt: Prompt, scores: Sequence[Scored]) -> list[ScoredToken]:
        """The prompt's tokens with their places and log-probabilities."""
        detokenizer, offsets = Detokenizer(self.tokenizer, []), list[int]()
        for token in prompt.ids:
            offsets.append(len(detokenizer.settled))
            detokenizer.add([token])
        return [ScoredToken(token, at, *score) for token, at, score in zip(prompt.ids, offsets, scores, strict=True)]

    def step(self) -> Tensor:
        """Runs the last token of every row through the network -> n v: the logits of the next token."""
        if self.drafting is not None and (ahead := self.drafting.step(self.rows)) is not None:
            return ahead
        rest, logits = iter(self.rows), list[Tensor]()
        for slots in self.slots.passes:
            rows = list(islice(rest, slots.n))
            last = Tokens(torch.tensor([[row.written[-1]] for row in rows], device=self.device))
            with steered(self.network, [row.prompt.steering for row in rows], last):
                logits.append(self.network.decode(last, None, slots)[:, -1])
        return torch.cat(logits)

    def write(self, logits: Tensor, *, first: int = 0) -> None:
        """Samples a token per row from `first` on, removes finished rows and notifies clients."""
        rows = self.rows[first:]
        tokens, scores = list[int | None](), dict[int, Scored]()
        # A pass of one row has the numbers that the row has alone.
        for own in logits.split(1 if self.is_deterministic else len(rows)):
            some = rows[len(tokens) : len(tokens) + len(own)]
            chosen = choose(own, some)
            scores |= {len(tokens) + i: score for i, score in self.scores(own, some, chosen).items()}
            tokens += chosen
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
            if not self.rows[i].ticket.is_gone:
                self.keep(i)
            self.slots.leave(i)
            self.rows[i] = self.rows[-1]
            self.rows.pop()

    def reason(self, error: Exception) -> Failed:
        """The message of an error. Frees what can be computed again if memory has run out."""
        if is_memory(error):
            self.prefixes.clear()
            _log.warning("Out of memory: try fewer --slots, a lower --max-length or a smaller --prefix-cache")
            return Failed(503, "out of memory; try again in a moment, or a shorter prompt")
        if isinstance(error, UserError):  # A tokenizer that takes too much for the tokens that were written.
            return Failed(400, str(error))
        _log.error("The server could not write", exc_info=error)
        return Failed(500, INTERNAL)
