"""The routes of the server, and the check of who may use them."""

import asyncio
import json
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import numpy as np
from pydantic import JsonValue
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from clearhead.serve import schemas
from clearhead.serve.batches import Answer, Asked, Predictor, SourceText, Translator
from clearhead.serve.engine import Engine
from clearhead.serve.replies import Object, ReplyFormat, embeddings, failure
from clearhead.serve.schemas import (
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    PredictionRequest,
    TranslationRequest,
    Writes,
    Wrong,
)
from clearhead.serve.service import INPUTS, ROUTES, Service
from clearhead.serve.texts import Prompt, Update
from clearhead.serve.worker import INTERNAL, Failed, JobT, Ticket, UpdateT, Worker
from clearhead.web import Bodies, bearer, origin_error

_log = logging.getLogger("clearhead")

BODY_LIMIT = 4_000_000
"""Bytes of a request."""
BODY_SECONDS = 20.0
"""Seconds within which a request must arrive."""

T = TypeVar("T")


class KeyGuard:
    """Admits requests to this machine's names that come from no other site. With a key, admits those that have it."""

    def __init__(self, app: ASGIApp, *, key: str | None) -> None:
        self.app, self.key = app, None if key is None else key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http":
            await (self.refusal(scope) or self.app)(scope, receive, send)

    def refusal(self, scope: Scope) -> Response | None:
        """403 for another host or origin, 401 without the key."""
        headers = Headers(scope=scope)
        if self.key is not None:
            given = bearer(headers)
            is_known = given is not None and secrets.compare_digest(given.encode("latin-1"), self.key)
            return None if is_known else failure(401, "authorization: expected a bearer with the server's key")
        why = origin_error(headers)
        return None if why is None else failure(403, why)


class Routes:
    """Answers requests with the worker's news."""

    def __init__(self, service: Service, worker: Engine | Translator | Predictor) -> None:
        self.service, self.worker, self.created = service, worker, int(time.time())
        self.bodies = Bodies(BODY_LIMIT, BODY_SECONDS, "body")

    # --- routes ------------------------------------------------------------------------------------------------

    async def completions(self, request: Request) -> ASGIApp:
        """POST /v1/completions"""
        async with self.asked(request, CompletionRequest) as asked:
            self.service.require("complete")
            ids = await self.read(request, self.service.prompt, asked.prompt, "prompt")
            prompts = self.service.completion(asked, ids)
        echoes = None
        if asked.echo:
            decode = self.service.model.tokenizer.decode
            echoes = [one if isinstance(one, str) else decode(one) for one in asked.prompt]
        return await self.write(request, asked, prompts, chats=False, echoes=echoes)

    async def chat(self, request: Request) -> ASGIApp:
        """POST /v1/chat/completions"""
        async with self.asked(request, ChatRequest) as asked:
            prompts = await asyncio.to_thread(self.service.chat, asked)
        return await self.write(request, asked, prompts, chats=True)

    async def translate(self, request: Request) -> ASGIApp:
        """POST /translate"""
        async with self.asked(request, TranslationRequest) as asked:
            self.service.require("translate")
            ids = await self.read(request, partial(self.service.ids, "text", allows_blank=True), asked.text, "text")
        known = [number for number, text in enumerate(asked.text) if text.strip()]
        found = await self.answers(request, [SourceText(number, ids[number]) for number in known]) if known else []
        translations = dict.fromkeys(range(len(ids)), "") | dict(zip(known, found, strict=True))
        return JSONResponse({"model": self.service.name, "translations": [*translations.values()]})

    async def predict(self, request: Request) -> ASGIApp:
        """POST /v1/predict"""
        async with self.asked(request, PredictionRequest) as asked:
            self.service.require("predict")
            n_labels = len(asked.labels or ())
            if n_labels > 1:  # The network reads each text with each label.
                self.worker.check(n_labels * len(asked.inputs))
            own = await asyncio.to_thread(self.service.zero_shot, asked)
            lines = await asyncio.to_thread(self.service.lines, asked.inputs, own)
            await self.read(request, partial(self.service.ids, "inputs", allows_blank=True), lines, "inputs")
        values = await self.answers(request, [Asked(number, line, zero_shot=own) for number, line in enumerate(lines)])
        return JSONResponse({"model": self.service.name, "predictions": values})

    async def embeddings(self, request: Request) -> ASGIApp:
        """POST /v1/embeddings"""
        async with self.asked(request, EmbeddingRequest) as asked:
            self.service.require("embed")
            ids = await self.read(request, partial(self.service.ids, "input"), asked.input, "input")
        vectors = await self.answers(request, [Asked(i, text, embeds=True) for i, text in enumerate(asked.input)])
        width = np.array(vectors).shape[-1]
        if asked.dimensions not in (None, width):
            raise Wrong(f"dimensions: expected {width}, which this model has, got {asked.dimensions}", "dimensions")
        return JSONResponse(embeddings(self.service.name, vectors, asked, n_tokens=sum(map(len, ids))))

    async def answers(self, request: Request, jobs: Sequence[SourceText] | Sequence[Asked]) -> list[JsonValue]:
        """The answer to each job, in order."""
        worker: Any = self.worker
        found: list[Answer] = await answered(request, worker, jobs, len(jobs))
        return [one.value for one in sorted(found, key=lambda one: one.number)]

    async def models(self, _: Request) -> Response:
        """GET /v1/models"""
        return JSONResponse({"object": "list", "data": [self.card()]})

    async def model(self, request: Request) -> Response:
        """GET /v1/models/NAME"""
        self.service.check_name(request.path_params["name"])
        return JSONResponse(self.card())

    async def health(self, _: Request) -> Response:
        """GET /health"""
        if not self.worker.thread.is_alive():
            return failure(503, "the network's thread has ended; start the server again")
        running, waiting = len(self.worker.under_way), len(self.worker.waiting)
        return JSONResponse({"status": "ok", "model": self.service.name, "running": running, "waiting": waiting})

    async def index(self, request: Request) -> Response:
        """GET /: the model, a request to try, and every route."""
        what, route = ROUTES[self.service.does]
        address = f"{request.base_url}{route.removeprefix('/')}"
        body = json.dumps({INPUTS[self.service.does]: ["A man is riding a bike."]})
        example = f"curl {address} -H 'Content-Type: application/json' -d '{body}'"
        routes = [f"{'GET' if 'GET' in (one.methods or ()) else 'POST'} {one.path}" for one in request.app.routes]
        found = {"model": self.service.name, "about": f"This model {what}.", "try": example, "routes": routes}
        return JSONResponse(found)

    def card(self) -> Object:
        """The model's entry in a list of models."""
        return {"id": self.service.name, "object": "model", "created": self.created, "owned_by": "clearhead"}

    # --- writing -----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def asked(self, request: Request, kind: type[schemas.R]) -> AsyncIterator[schemas.R]:
        """The request, checked. Raises Wrong or HTTPException."""
        async with self.bodies.of(request) as body:
            asked = await asyncio.to_thread(schemas.read, kind, body)
            self.service.check_name(asked.model)
            yield asked

    async def read(
        self, request: Request, ids_of: Callable[[T], list[int]], inputs: Sequence[T], field: str
    ) -> list[list[int]]:
        """The ids of each input of a request. Lets other requests go between two inputs. Raises Wrong."""
        if not inputs:
            raise Wrong(f"{field}: expected at least one, got an empty list", field)
        self.worker.check(len(inputs))
        found: list[list[int]] = []
        for one in inputs:
            found.append(await asyncio.to_thread(ids_of, one))
            if await request.is_disconnected():
                raise ClientDisconnect
        return found

    async def write(
        self,
        request: Request,
        asked: Writes,
        prompts: Sequence[Prompt],
        *,
        chats: bool,
        echoes: Sequence[str] | None = None,
    ) -> ASGIApp:
        """The texts, at once or as they are written."""
        assert isinstance(self.worker, Engine)
        model = self.service.model
        reply = ReplyFormat(self.service.name, model.tokenizer, prompts, chats, bool(asked.return_token_ids), echoes)
        n_texts = sum(prompt.n for prompt in prompts)
        if not asked.stream:
            return JSONResponse(reply.whole(await answered(request, self.worker, prompts, n_texts)))
        ticket: Ticket[Update] = Ticket()
        self.worker.submit(ticket, prompts)
        return _Stream(ticket, _events(ticket, reply, n_texts, counts=asked.counts_tokens))


class _Stream:
    """Server-sent events. A client that hangs up frees its slots."""

    def __init__(self, ticket: Ticket[Update], events: AsyncIterator[str]) -> None:
        self.ticket, self.events = ticket, events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            headers = {"Cache-Control": "no-store"}
            await StreamingResponse(self.events, headers=headers, media_type="text/event-stream")(scope, receive, send)
        finally:
            self.ticket.is_gone = True


async def _events(ticket: Ticket[Update], reply: ReplyFormat, n_texts: int, *, counts: bool) -> AsyncIterator[str]:
    try:
        while n_texts:
            update = await ticket.next()
            n_texts -= update.reason is not None
            yield _event(reply.part(update))
        if counts:
            yield _event(reply.last())
        yield "data: [DONE]\n\n"
    except Failed as error:
        # The status has gone out: the error is the last event.
        yield f"data: {bytes(failure(error.status, str(error)).body).decode()}\n\n"


def _event(value: Object) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}\n\n"


async def answered(request: Request, worker: Worker[JobT, UpdateT], jobs: Sequence[JobT], n: int) -> list[UpdateT]:
    """The n news of the jobs of a request, as they come. Raises ClientDisconnect if the client hangs up first."""
    ticket: Ticket[UpdateT] = Ticket()

    async def all_of_them() -> list[UpdateT]:
        return [await ticket.next() for _ in range(n)]

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    worker.submit(ticket, jobs)
    answering, hanging_up = asyncio.create_task(all_of_them()), asyncio.create_task(gone())
    try:
        await asyncio.wait([answering, hanging_up], return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            raise ClientDisconnect
        return answering.result()
    finally:
        ticket.is_gone = True
        answering.cancel()
        hanging_up.cancel()


# --- what goes wrong ----------------------------------------------------------------------------------------------


def _failed(request: Request, error: Exception) -> Response:
    """The response to a request that is wrong, or for which there is no place now."""
    match error:
        case Wrong():
            return failure(error.status, str(error), field=error.field, code=error.code)
        case Failed():
            return failure(error.status, str(error), code=error.code)
        case HTTPException():
            asked = f"{request.method} {request.url.path}"
            known = {404: f"{asked}: no such route here", 405: f"{asked}: not by this method"}
            response = failure(error.status_code, known.get(error.status_code, error.detail))
            response.headers.update(error.headers or {})
            return response
        case ClientDisconnect():
            return failure(400, "the client has gone")
    _log.error("The server could not answer", exc_info=error)
    return failure(500, INTERNAL)


def application(routes: Routes, *, key: str | None = None) -> ASGIApp:
    """The whole application. With a key it answers requests that send it as a bearer token."""
    app = Starlette(
        routes=[
            Route("/", routes.index),
            Route("/v1/models", routes.models),
            Route("/v1/models/{name:path}", routes.model),
            Route("/v1/completions", routes.completions, methods=["POST"]),
            Route("/v1/chat/completions", routes.chat, methods=["POST"]),
            Route("/v1/predict", routes.predict, methods=["POST"]),
            Route("/v1/embeddings", routes.embeddings, methods=["POST"]),
            Route("/translate", routes.translate, methods=["POST"]),
            Route("/health", routes.health),
        ],
        exception_handlers=dict.fromkeys((Wrong, Failed, HTTPException, ClientDisconnect, Exception), _failed),
    )
    app.router.redirect_slashes = False
    return KeyGuard(app, key=key)
