"""Small models that write, an engine to itself, and what several clients ask of it at once."""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from starlette.testclient import TestClient

from clearhead.api import Model
from clearhead.cli.use.serve import worker_of
from clearhead.generation import Draft
from clearhead.recipe.generation import GenerationConfig
from clearhead.recipe.tokenizers import ByteBPE
from clearhead.serve.engine import Engine
from clearhead.serve.server import Routes, application
from clearhead.serve.service import Service
from clearhead.serve.texts import Prompt, Update
from clearhead.serve.worker import Failed, Ticket
from clearhead.text.tokenizers import Tokenizer
from tests.small_models import model_of

T = TypeVar("T")
NAME = "runs/tiny"
BYTES = ByteBPE(vocab_size=300)


def writer_model(**stacks: Any) -> Model:
    """A decoder of bytes and short pieces, random and in float64, so that no two tokens are nearly as likely."""
    model = model_of("nano", BYTES, **stacks)
    model.network.double()
    model.generation = GenerationConfig(max_new_tokens=12)
    return model


def endless_model() -> Model:
    """One that goes on until somebody stops it."""
    model = writer_model(positions={"kind": "rotary"})
    assert model.tokenizer.eos_id is not None
    model.generation = GenerationConfig(banned_ids=(model.tokenizer.eos_id,))
    return model


def still_engine(
    model: Model,
    *,
    slots: int = 4,
    most_cells: int = 64,
    most_waiting: int = 64,
    prefix_bytes: int = 0,
    draft: Draft | None = None,
    is_deterministic: bool = False,
) -> Engine:
    """An engine whose thread has not been started."""
    return Engine(
        model.network,
        model.tokenizer,
        slots=slots,
        most_cells=most_cells,
        most_waiting=most_waiting,
        prefix_bytes=prefix_bytes,
        draft=draft,
        is_deterministic=is_deterministic,
    )


@contextmanager
def engine_of(model: Model, **sizes: Any) -> Iterator[Engine]:
    """An engine that works, and has ended afterwards."""
    engine = still_engine(model, **sizes)
    engine.start()
    try:
        yield engine
    finally:
        engine.end()
        engine.thread.join()
        assert not engine.thread.is_alive()


def ask(model: Model, ids: Sequence[int], *, limit: int = 12, **fields: Any) -> Prompt:
    """A prompt with the model's own settings, but for these."""
    names = {"n", "number", "stop", "streams", "likeliest", "scores_prompt", "steering", "drafts"}
    given = {name: value for name, value in fields.items() if name in names}
    settings = {name: value for name, value in fields.items() if name not in names}
    config = GenerationConfig.model_validate(model.settings().model_dump() | settings)
    return Prompt(ids=list(ids), config=config, limit=limit, **given)


def run(coroutine: Coroutine[object, object, T]) -> T:
    """What it gives, in a thread of its own: a browser of other tests may have a loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


async def answer(engine: Engine, prompts: Sequence[Prompt]) -> dict[int, list[Update]]:
    """All that is told of each text of one request."""
    ticket: Ticket[Update] = Ticket()
    engine.submit(ticket, prompts)
    found: dict[int, list[Update]] = {}
    n_left = sum(prompt.n for prompt in prompts)
    while n_left:
        update = await asyncio.wait_for(ticket.next(), 60)
        found.setdefault(update.choice, []).append(update)
        n_left -= update.reason is not None
    return found


def answers(engine: Engine, requests: Sequence[Sequence[Prompt]]) -> list[dict[int, list[Update]]]:
    """Several requests at once."""

    async def all_of_them() -> list[dict[int, list[Update]]]:
        return list(await asyncio.gather(*(answer(engine, prompts) for prompts in requests)))

    return run(all_of_them())


def played(engine: Engine, requests: Sequence[Sequence[Prompt]]) -> list[dict[int, list[Update]]]:
    """What a still engine tells of requests that are all there when it begins, turn by turn in this thread."""

    async def play() -> list[dict[int, list[Update]]]:
        asked = [asyncio.ensure_future(answer(engine, prompts)) for prompts in requests]
        await asyncio.sleep(0)
        with torch.inference_mode():
            while engine.waiting or engine.under_way:
                engine.turn()
                engine.post()
        return list(await asyncio.gather(*asked))

    return run(play())


def written(updates: Sequence[Update]) -> list[int]:
    """The tokens of one text."""
    return [token.id for update in updates for token in update.tokens]


def failed(engine: Engine, prompts: Sequence[Prompt]) -> Failed:
    """The failure that a request meets."""

    async def request() -> Failed:
        try:
            await answer(engine, prompts)
        except Failed as error:
            return error
        raise AssertionError("it was answered")

    return run(request())


def texts_of(tokenizer: Tokenizer, prompt: Sequence[int], tokens: Sequence[int]) -> str:
    """The continuation as `Model.generate` has it."""
    return tokenizer.decode([*prompt, *tokens])[len(tokenizer.decode(prompt)) :]


@contextmanager
def routes_of(model: Model, *, queue: int = 32, prefix_cache: int = 0, **service: Any) -> Iterator[Routes]:
    """The routes of a server whose worker works, and has ended afterwards."""
    settings: dict[str, Any] = {"slots": 4, "max_length": 64, **service}
    made = Service(model, NAME, **settings)
    worker = worker_of(made, queue=queue, prefix_cache=prefix_cache)
    worker.start()
    try:
        yield Routes(made, worker)
    finally:
        worker.end()
        worker.thread.join()


@contextmanager
def client_of(model: Model, *, key: str | None = None, **sizes: Any) -> Iterator[TestClient]:
    with routes_of(model, **sizes) as routes:
        app = application(routes, key=key)
        yield TestClient(app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False)
