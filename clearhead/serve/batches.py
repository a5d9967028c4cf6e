"""Workers that answer waiting texts in batches: translations, predictions and vectors."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from clearhead.api import Model
from clearhead.api.predicting import ZeroShot, entailments, predictions
from clearhead.errors import UserError, is_memory
from clearhead.generation import Finished, GenerationEvent, completing
from clearhead.recipe.generation import GenerationConfig
from clearhead.serve.worker import Failed, JobT, Ticket, Worker
from clearhead.tasks.task import RecipeTask

AT_ONCE = 64
"""Texts in a batch: few, so that later texts do not wait long."""


@dataclass(frozen=True)
class Answer:
    """The translation, prediction or vector of one input, and the place of the input in its request."""

    number: int
    value: JsonValue


class BatchWorker(Worker[JobT, Answer]):
    """Answers jobs in batches."""

    def __init__(self, model: Model, *, most_waiting: int, at_once: int = AT_ONCE) -> None:
        """`at_once` is how many texts are in a batch at most."""
        super().__init__(most_waiting=most_waiting)
        self.model, self.at_once = model, at_once
        self.taken: list[tuple[Ticket[Answer], JobT]] = []

    @property
    def under_way(self) -> Sequence[Ticket[Answer]]:
        return [ticket for ticket, _ in self.taken]

    @abstractmethod
    def work(self) -> None:
        """Does a part of the work on a batch."""

    def turn(self) -> None:
        try:
            self.work()
        except Exception as error:
            if not is_memory(error):
                raise
            self.fail(self.under_way, Failed(503, "out of memory; try again in a moment, or a shorter text"))
            self.taken = []


@dataclass(frozen=True)
class SourceText:
    """One text to translate by its ids, and its place in the request."""

    number: int
    ids: list[int]


class Translator(BatchWorker[SourceText]):
    """Owns an encoder-decoder, whose search has settings of its own."""

    def __init__(self, model: Model, config: GenerationConfig, *, most_waiting: int, at_once: int = AT_ONCE) -> None:
        super().__init__(model, most_waiting=most_waiting, at_once=at_once)
        self.config = model.settings(config)
        self.events: Iterator[tuple[list[int], GenerationEvent]] = iter(())

    def work(self) -> None:
        """Runs one step of the search. Takes new texts if nobody waits for the present ones."""
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
                    self.tell(ticket, Answer(source.number, self.model.tokenizer.decode(best.tokens)))
            case _:
                pass


@dataclass(frozen=True)
class Asked:
    """One input of a request, and its place in it."""

    number: int
    text: str
    embeds: bool = False
    """Whether its vector is asked for."""
    zero_shot: ZeroShot | None = None
    """Labels of the client's, in place of the model's own."""

    @property
    def n_texts(self) -> int:
        """Texts that the network reads for it: one, or one with each of the labels."""
        return 1 if self.zero_shot is None else len(self.zero_shot.labels)

    def goes_with(self, others: Sequence["Asked"], *, at_once: int = AT_ONCE) -> bool:
        """Returns True if this input can be answered in one batch with these, of at most `at_once` texts."""
        alike = all(self.embeds == one.embeds and self.zero_shot == one.zero_shot for one in others)
        return alike and (not others or self.n_texts + sum(one.n_texts for one in others) <= at_once)


class Predictor(BatchWorker[Asked]):
    """Owns a model that labels, tags, answers or embeds texts."""

    def __init__(
        self, model: Model, task: type[RecipeTask[Any]] | None, *, most_waiting: int, at_once: int = AT_ONCE
    ) -> None:
        """`task` is None for a model that only embeds."""
        super().__init__(model, most_waiting=most_waiting, at_once=at_once)
        self.task = task

    def work(self) -> None:
        """Answers the inputs that have waited longest. If one of a batch is wrong, each request is answered alone."""
        self.taken = self.take(lambda taken, one: one.goes_with(taken, at_once=self.at_once))
        try:
            self.answer(self.taken)
        except UserError:
            for ticket in dict.fromkeys(self.under_way):
                try:
                    self.answer([(own, one) for own, one in self.taken if own is ticket])
                except UserError as error:
                    self.fail([ticket], Failed(400, str(error)))
        self.taken = []

    def answer(self, taken: Sequence[tuple[Ticket[Answer], Asked]]) -> None:
        """Gives each request the predictions for its inputs."""
        if not taken:
            return
        texts, own = [one.text for _, one in taken], taken[0][1].zero_shot
        if own is not None:
            found: list[JsonValue] = [said.values for said in entailments(self.model, texts, own)]
        elif taken[0][1].embeds:
            found = self.model.embed(texts).float().tolist()
        else:
            assert self.task is not None
            found = [said.values for said in predictions(self.model, self.task, texts)]
        for (ticket, one), value in zip(taken, found, strict=True):
            self.tell(ticket, Answer(one.number, value))
