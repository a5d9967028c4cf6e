"""Continuous batching: texts join and leave the batch between two steps, and each step writes a token of all of them.

The scheduling of Yu et al. 2022 (Orca), section 3.1, an iteration at a time; the cache is of plain rows.
"""

import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import is_memory
from clearhead.model import Tokens, Transformer
from clearhead.model.layout import Layout
from clearhead.model.linear import packed
from clearhead.model.transformer import Stack
from clearhead.serve.choosing import Scored, choose, scored
from clearhead.serve.slots import Prefill, Slots
from clearhead.serve.text import Writer
from clearhead.serve.worker import Failed, Ticket, Worker
from clearhead.serve.writing import Prompt, Token, Update, Writing

_log = logging.getLogger("clearhead")

AT_ONCE = 512
"""Prompt tokens, padding included, that are read between two steps, unless one prompt has more."""
SCORED_AT_ONCE = 128
"""Positions of a prompt whose logits are in memory together."""


class Engine(Worker[Prompt, Update]):
    """Owns a decoder: reads prompts that wait while there are slots, then writes a token of each running text."""

    def __init__(
        self, network: Transformer, tokenizer: Tokenizer, *, slots: int, most_cells: int, most_waiting: int
    ) -> None:
        super().__init__(most_waiting=most_waiting)
        assert network.decoder is not None
        assert network.encoder is None
        self.network, self.tokenizer = packed(network.eval()), tokenizer
        self.device = network.decoder.table.weight.device
        self.slots = Slots(len(network.decoder.blocks), most_rows=slots, most_cells=most_cells)
        self.rows: list[Writing] = []

    @property
    def decoder(self) -> Stack:
        """The network's only stack."""
        assert self.network.decoder is not None
        return self.network.decoder

    @property
    def under_way(self) -> Sequence[Ticket[Update]]:
        return [row.ticket for row in self.rows]

    def turn(self) -> None:
        """Rows whose clients are gone leave, prompts join, and every row gets a token."""
        self.drop([i for i, row in enumerate(self.rows) if row.ticket.is_gone])
        arrivals = self.take(self.fits)
        if arrivals:
            try:
                self.read(arrivals)
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
        """Whether a prompt can be read together with these, and its texts have slots."""
        together = [*taken, prompt]
        if len(self.rows) + sum(one.n for one in together) > self.slots.most_rows:
            return False
        return not taken or len(together) * max(len(one.ids) for one in together) <= AT_ONCE

    def read(self, arrivals: Sequence[tuple[Ticket[Update], Prompt]]) -> None:
        """Prefill: all prompts in one pass; their texts are rows from now on, and have their first token."""
        lengths = [len(prompt.ids) for _, prompt in arrivals]
        tokens = Tokens.pad([prompt.ids for _, prompt in arrivals], packed=True).to(self.device)
        prefill = Prefill(len(self.decoder.blocks))
        states, layout = self.decoder(tokens, None, prefill)
        ends = torch.tensor(lengths, device=self.device).cumsum(0)
        states = states if states.dim() == 2 else states.flatten(0, 1)
        logits = self.network.head(states[ends - 1], layout)
        new: list[Writing] = []
        parents: list[int] = []
        for i, (ticket, prompt) in enumerate(arrivals):
            scores: list[Token] = []
            if prompt.scores_prompt:
                own = states[int(ends[i]) - lengths[i] : int(ends[i])]
                scores = self.score_prompt(prompt, own, layout)
            for sample in range(prompt.n):
                row = Writing(ticket, prompt, sample, Writer(self.tokenizer, prompt.ids, prompt.stop))
                row.scored = scores
                new.append(row)
                parents.append(i)
        self.slots.join(prefill, parents, [lengths[i] for i in parents])
        first, self.rows = len(self.rows), self.rows + new
        self.write(logits[torch.tensor(parents, device=self.device)], first=first)

    def score_prompt(self, prompt: Prompt, states: Tensor, layout: Layout) -> list[Token]:
        """The prompt's tokens with their log-probabilities; the first has none."""
        found: list[Scored] = [(None, [])]
        for start in range(0, len(states) - 1, SCORED_AT_ONCE):
            part = states[start : start + SCORED_AT_ONCE][: len(states) - 1 - start]
            logits = self.network.head(part, layout)
            found += scored(logits, prompt.ids[start + 1 : start + 1 + len(part)], prompt.likeliest or 0)
        writer, offsets = Writer(self.tokenizer, []), list[int]()
        for token in prompt.ids:
            offsets.append(len(writer.text))
            writer.add([token])
        return [Token(token, at, *score) for token, at, score in zip(prompt.ids, offsets, found, strict=True)]

    def step(self) -> Tensor:
        """The last token of every row through the network -> n v: logits of the next."""
        last = torch.tensor([[row.written[-1]] for row in self.rows], device=self.device)
        return self.network.decode(Tokens(last), None, self.slots)[:, -1]

    def write(self, logits: Tensor, *, first: int = 0) -> None:
        """A token of each row from the first on; those that end leave, and everybody is told what there is to tell."""
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
        """Log-probabilities for the rows that want them."""
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
        """These rows give their slots up; the last ones take their places."""
        for i in reversed(leaving):
            self.slots.leave(i)
            self.rows[i] = self.rows[-1]
            self.rows.pop()


def _reason(error: Exception) -> Failed:
    """What a client is told of an error of ours."""
    if is_memory(error):
        _log.warning("Out of memory: try fewer --slots or a lower --max-length")
        return Failed(503, "out of memory; try again in a moment, or a shorter prompt")
    _log.error("The server could not write", exc_info=error)
    return Failed(500, "a mistake of ours; the terminal that runs clearhead shows where")
