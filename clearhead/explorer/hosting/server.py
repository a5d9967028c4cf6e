"""Serves the explorer: its page, its files, and the answers of a session, for the holder of a token."""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

from pydantic import JsonValue
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from clearhead.errors import OutOfMemory, UserError
from clearhead.explorer.places import places
from clearhead.explorer.static_files import FILES, static_file
from clearhead.explorer.turns import LEFT
from clearhead.machine.device import keep_freed_memory
from clearhead.web import Bodies, parsed
from clearhead.web.page import HEADERS, Server, TokenGuard, failure, refused, serving_page

__all__ = ["HEADERS", "Answers", "QuestionQueue", "answered", "application"]

_log = logging.getLogger("clearhead")

BODY_LIMIT = 12_000_000
"""Bytes of a question: an image is the largest thing in one."""
BODY_SECONDS = 20.0
"""Seconds within which a question must arrive."""
AT_ONCE = 8
"""Questions in worker threads: more than a browser sends at once, so that sweeps leave some of them."""
LOOK = 0.1
"""Seconds after which a page is asked again whether it still waits."""
MAX_WAITING = 256
"""Questions in all, those in threads included."""

SHELL = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>clearhead</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/static/explorer.css">
<script type="module" src="/static/boot.js"></script>
</head>
<body>
<div id="app"></div>
<noscript>The explorer needs JavaScript.</noscript>
</body>
</html>
"""
"""The page, which the script fills."""


class Answers(Protocol):
    """The part of a session that a host needs. Several threads call `answer`."""

    def answer(self, question: Mapping[str, JsonValue]) -> bytes:
        """The reply to a question. Raises UserError if the question is wrong."""
        ...


class QuestionQueue:
    """Queues questions, has the session answer them in worker threads, and returns the replies."""

    def __init__(self, session: Answers) -> None:
        self.session, self.is_open = session, True
        self.turns, self.n_under_way = asyncio.Semaphore(AT_ONCE), 0
        self.bodies = Bodies(BODY_LIMIT, BODY_SECONDS, "question")

    def close(self) -> None:
        """Leaves questions that wait for their turn without an answer."""
        self.is_open = False

    async def ask(self, request: Request) -> Response:
        """Answers one question: JSON in, a safetensors file out. Skips a client that disconnects before its turn."""
        try:
            async with self.bodies.of(request) as body:
                question = await asyncio.to_thread(question_in, body)
                if self.n_under_way >= MAX_WAITING:
                    return failure(503, f"{MAX_WAITING} questions are waiting; try again in a moment")
                self.n_under_way += 1
                try:
                    async with self.turns:
                        if not self.is_open or await request.is_disconnected():
                            return failure(503, "the explorer has ended")
                        left = threading.Event()
                        watch = asyncio.create_task(self._watch(request, left))
                        try:
                            return await run_in_threadpool(self.reply, question, left)
                        finally:
                            watch.cancel()
                finally:
                    self.n_under_way -= 1
        except ClientDisconnect:
            return failure(400, "the question ended early")

    async def _watch(self, request: Request, left: threading.Event) -> None:
        """Sets `left` once the page no longer waits, or the explorer has ended."""
        while self.is_open and not await request.is_disconnected():
            await asyncio.sleep(LOOK)
        left.set()

    def reply(self, question: Mapping[str, JsonValue], left: threading.Event) -> Response:
        """The answer of the session, or an error."""
        status, said = answered(self.session, question, left, log="the terminal that runs clearhead")
        if isinstance(said, str):
            return failure(status, said)
        return Response(said, media_type="application/octet-stream")


def answered(
    session: Answers, question: Mapping[str, JsonValue], left: threading.Event, *, log: str
) -> tuple[int, bytes | str]:
    """200 and the answer of the session, or the status and the message of an error. `log` shows internal ones.

    The answer is given up between two pieces of its work if `left` is set.
    """
    token = LEFT.set(left)
    try:
        return 200, session.answer(question)
    except (OutOfMemory, MemoryError) as error:
        return 503, str(error) or "out of memory; try a shorter text"
    except UserError as error:
        return 400, str(error)
    except Exception:
        _log.exception("The explorer could not answer %.60r", question.get("ask"))
        return 500, f"internal error; {log} shows where"
    finally:
        LEFT.reset(token)


def question_in(body: bytearray) -> Mapping[str, JsonValue]:
    """The JSON object in a body. Raises HTTPException if there is none."""
    try:
        question = parsed(body)
    except ValueError as error:
        raise HTTPException(400, f"question: {error}") from None
    if not isinstance(question, dict):
        raise HTTPException(400, f"question: expected a JSON object, got {type(question).__name__}")
    return question


async def shell(_: Request) -> Response:
    """The page."""
    return HTMLResponse(SHELL)


async def place(request: Request) -> Response:
    """The script of a place of another package."""
    known, name = places(), str(request.path_params["name"])
    return file(known[name].source if name in known else None, "text/javascript")


async def static(request: Request) -> Response:
    """One of the page's files."""
    name = str(request.path_params["name"])
    return file(partial(static_file, name) if name in FILES else None, FILES.get(name))


def file(read: Callable[[], str | bytes] | None, kind: str | None) -> Response:
    """The content of a file. Raises HTTPException if there is none."""
    if read is None:
        raise HTTPException(404)
    try:
        return Response(read(), media_type=kind)
    except UserError as error:
        return failure(500, str(error))


def application(queue: QuestionQueue, *, token: str, cookie: str) -> ASGIApp:
    """The whole application, behind the guard."""
    app = Starlette(
        routes=[
            Route("/", shell),
            Route("/static/{name}", static),
            Route("/place/{name}.js", place),
            Route("/ask", queue.ask, methods=["POST"]),
        ],
        exception_handlers={HTTPException: refused},
    )
    app.router.redirect_slashes = False
    return TokenGuard(app, token=token, cookie=cookie, command="clearhead explore")


def serving(session: Answers, listener: socket.socket | None = None) -> AbstractContextManager[Server[QuestionQueue]]:
    """Serves the session, on the listener's port or a free one, until the end of the block."""
    keep_freed_memory()
    return serving_page(QuestionQueue(session), application, listener, name="explorer", before_end=QuestionQueue.close)
