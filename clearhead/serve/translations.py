"""Translates waiting texts in batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clearhead.api import Model
from clearhead.errors import is_memory
from clearhead.generation import Finished, GenerationEvent, completing
from clearhead.recipe.generation import GenerationConfig
from clearhead.serve.worker import Failed, Ticket, Worker

AT_ONCE = 64
"""Texts in a batch: few, so that later texts do not wait long."""


@dataclass(frozen=True)
class SourceText:
    """One text of a request, by its ids, and its place in it."""

    number: int
    ids: list[int]


@dataclass(frozen=True)
class Translated:
    """One translation, and the place of its text."""

    number: int
    text: str


class Translator(Worker[SourceText, Translated]):
    """Owns an encoder-decoder, whose search has settings of its own."""

    def __init__(self, model: Model, config: GenerationConfig, *, most_waiting: int, at_once: int = AT_ONCE) -> None:
        """`at_once` is how many texts are in a batch at most."""
        super().__init__(most_waiting=most_waiting)
        self.at_once = at_once
        self.model, self.config = model, model.settings(config)
        self.taken: list[tuple[Ticket[Translated], SourceText]] = []
        self.events: Iterator[tuple[list[int], GenerationEvent]] = iter(())

    @property
    def under_way(self) -> Sequence[Ticket[Translated]]:
        return [ticket for ticket, _ in self.taken]

    def turn(self) -> None:
        """Runs one step of the search. Takes new texts if nobody waits for the present ones."""
        try:
            if all(ticket.is_gone for ticket in self.under_way):
                self.taken = self.take(lambda taken, _: len(taken) < self.at_once)
                sources = [source.ids for _, source in self.taken]
                self.events = completing(self.model.network, source=sources, config=self.config)
            match next(self.events, None):
                case None:
                    self.taken = []
                case (indices, Finished(hypotheses)):
                    for i, (best, *_) in zip(indices, hypotheses, strict=True):
                        ticket, source = self.taken[i]
                        self.tell(ticket, Translated(source.number, self.model.tokenizer.decode(best.tokens)))
                case _:
                    pass
        except Exception as error:
            if not is_memory(error):
                raise
            self.fail(self.under_way, Failed(503, "out of memory; try again in a moment, or a shorter text"))
