"""Translations: texts that wait together are translated together."""

from collections.abc import Sequence
from dataclasses import dataclass

from clearhead.api import Model
from clearhead.errors import is_memory
from clearhead.recipe.generation import GenerationConfig
from clearhead.serve.worker import Failed, Ticket, Worker

AT_ONCE = 64
"""Texts of a batch, so that nobody waits long for the turn after it."""


@dataclass(frozen=True)
class Text:
    """One text of a request, and its place in it."""

    number: int
    text: str


@dataclass(frozen=True)
class Translated:
    """One translation, and the place of its text."""

    number: int
    text: str


class Translator(Worker[Text, Translated]):
    """Owns an encoder-decoder, whose search has settings of its own."""

    def __init__(self, model: Model, config: GenerationConfig, *, most_waiting: int) -> None:
        super().__init__(most_waiting=most_waiting)
        self.model, self.config = model, config
        self.batch: list[Ticket[Translated]] = []

    @property
    def under_way(self) -> Sequence[Ticket[Translated]]:
        return self.batch

    def turn(self) -> None:
        """One batch from beginning to end."""
        arrivals = self.take(lambda taken, _: len(taken) < AT_ONCE)
        self.batch = [ticket for ticket, _ in arrivals]
        try:
            if arrivals:
                texts = self.model.translate([job.text for _, job in arrivals], self.config)
                for (ticket, job), text in zip(arrivals, texts, strict=True):
                    self.tell(ticket, Translated(job.number, text))
        except Exception as error:
            if not is_memory(error):
                raise
            self.fail(self.batch, Failed(503, "out of memory; try again in a moment, or a shorter text"))
        self.batch = []
