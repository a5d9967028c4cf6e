"""Texts that are translated together, a step at a time."""

import pytest

from clearhead.api import Model
from clearhead.generation.settings import searching
from clearhead.serve.batches import Answer, SourceText, Translator
from clearhead.serve.worker import Failed, Ticket
from tests.serve.tiny import run
from tests.small_models import PAIRS, model_of

TEXTS = PAIRS.source[:5]


@pytest.fixture(scope="module")
def model() -> Model:
    return model_of("demo")


def translator_of(model: Model) -> Translator:
    """One whose turns the test takes."""
    return Translator(model, searching(model.generation, {}), most_waiting=9)


def sources(model: Model) -> list[SourceText]:
    return [SourceText(i, ids) for i, ids in enumerate(model.reader.ids(TEXTS))]


def news(worker: Translator) -> list[object]:
    return [update for _, update in worker.news]


def test_a_turn_is_a_step(model: Model):
    async def play() -> None:
        worker, ticket = translator_of(model), Ticket[Answer]()
        worker.submit(ticket, sources(model))
        worker.turn()
        assert worker.under_way == [ticket] * len(TEXTS)
        assert not worker.news
        n_turns = 1
        while worker.under_way:
            worker.turn()
            n_turns += 1
        assert n_turns > 3
        expected = model.translate(TEXTS, searching(model.generation, {}))
        assert sorted(news(worker), key=str) == [Answer(i, text) for i, text in enumerate(expected)]

    run(play())


def test_nobody_waits_nobody_works(model: Model):
    async def play() -> None:
        worker, gone, next_one = translator_of(model), Ticket[Answer](), Ticket[Answer]()
        worker.submit(gone, sources(model)[:4])
        worker.submit(Ticket(), sources(model)[4:])
        worker.turn()
        gone.is_gone = True
        worker.turn()
        assert len(worker.under_way) == 5, "somebody does"
        for ticket in worker.under_way:
            ticket.is_gone = True
        worker.submit(next_one, sources(model)[:1])
        worker.turn()
        assert worker.under_way == [next_one]
        assert not worker.news
        next_one.is_gone = True
        worker.turn()
        assert not worker.under_way
        assert model.network.training is False

    run(play())


def test_a_lack_of_memory_is_told_and_the_next_have_theirs(model: Model, monkeypatch):
    async def play() -> None:
        worker, ticket = translator_of(model), Ticket[Answer]()
        with monkeypatch.context() as patch:
            patch.setattr(type(model.network), "encode", lambda *_: (_ for _ in ()).throw(MemoryError()))
            worker.submit(ticket, sources(model))
            worker.turn()
        (failure,) = news(worker)
        assert isinstance(failure, Failed)
        assert failure.status == 503
        worker.news.clear()
        worker.submit(Ticket(), sources(model)[:1])
        worker.turn()
        while worker.under_way:
            worker.turn()
        assert len(worker.news) == 1

    run(play())
