"""The explorer as a web application: its page, its files and the session's answers, for the holder of a token."""

import asyncio
import logging
import secrets
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import parse_qs

from pydantic import JsonValue
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request, cookie_parser
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clearhead.errors import OutOfMemory, UserError
from clearhead.explorer.static_files import FILES, static_file
from clearhead.web import LOOPBACK, Bodies, parsed

_log = logging.getLogger("clearhead")

BODY_LIMIT = 12_000_000
"""Bytes of a question: an image is the largest thing in one."""
BODY_SECONDS = 20.0
"""Seconds within which a question must arrive."""
AT_ONCE = 4
"""Questions in worker threads."""
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

POLICY = (
    *("default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data: blob:"),
    *("connect-src 'self'", "font-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"),
)
HEADERS = {
    "Content-Security-Policy": "; ".join(POLICY),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""For every response. No cache, because another version of the package may use this address later."""


class Answers(Protocol):
    """The part of a session that a host needs. Several threads call `answer`."""

    def answer(self, question: Mapping[str, JsonValue]) -> bytes:
        """The reply to a question. Raises UserError if the question is wrong."""
        ...


class Guard:
    """Admits requests of this machine and of the page itself that carry the token. Adds `HEADERS` to every response.

    Only the names of this machine are hosts, because any other name that leads here was rebound by DNS. Any port will
    do, because ports may be forwarded. The token comes in the first address and then in a cookie, or as a bearer token.
    """

    def __init__(self, app: ASGIApp, *, token: str, cookie: str) -> None:
        self.app, self.token, self.cookie = app, token.encode(), cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        if scope["type"] == "http":
            app = self.refusal(scope) or self.entry(scope) or self.app
            await app(scope, receive, sealed)

    def refusal(self, scope: Scope) -> Response | None:
        """403 for another host or origin, 401 without the token."""
        headers = Headers(scope=scope)
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or not LOOPBACK.fullmatch(hosts[0]):
            return failure(403, "host: expected this machine, such as 127.0.0.1, got another name")
        if origins not in ([], [f"http://{hosts[0]}"]):
            return failure(403, "origin: expected this page, got another")
        given = [self.in_address(scope), cookie_parser(headers.get("cookie", "")).get(self.cookie)]
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        given.append(bearer if kind.lower() == "bearer" else None)
        if not any(self.is_token(one) for one in given):
            return failure(401, "token: expected the one that `clearhead explore` printed; open the whole address")
        return None

    def entry(self, scope: Scope) -> Response | None:
        """The answer to the first address: the token goes into a cookie, and out of the address.

        The cookie is lax, because browsers do not send a strict one after a link on another page, such as a terminal
        in a browser. Questions are POST requests, with which other sites cannot send a lax cookie.
        """
        if not self.is_token(self.in_address(scope)):
            return None
        response = RedirectResponse("/", status_code=303)
        response.set_cookie(self.cookie, self.token.decode(), httponly=True, samesite="lax")
        return response

    def in_address(self, scope: Scope) -> str | None:
        """The token of an address `/?token=…`."""
        query: bytes = scope["query_string"]
        is_first = scope["path"] == "/" and scope["method"] in ("GET", "HEAD")
        return parse_qs(query.decode("latin-1")).get("token", [None])[0] if is_first else None

    def is_token(self, given: str | None) -> bool:
        """Whether it is the token, compared in constant time."""
        return given is not None and secrets.compare_digest(given.encode(), self.token)


class Desk:
    """Queues questions, has the session answer them in worker threads, and returns the replies."""

    def __init__(self, session: Answers) -> None:
        self.session, self.is_open = session, True
        self.turns, self.n_under_way = asyncio.Semaphore(AT_ONCE), 0
        self.bodies = Bodies(BODY_LIMIT, BODY_SECONDS, "question")

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
                        return await run_in_threadpool(self.reply, question)
                finally:
                    self.n_under_way -= 1
        except ClientDisconnect:
            return failure(400, "the question ended early")

    def reply(self, question: Mapping[str, JsonValue]) -> Response:
        """The answer of the session, or an error."""
        status, said = answered(self.session, question, log="the terminal that runs clearhead")
        if isinstance(said, str):
            return failure(status, said)
        return Response(said, media_type="application/octet-stream")


def answered(session: Answers, question: Mapping[str, JsonValue], *, log: str) -> tuple[int, bytes | str]:
    """200 and the answer of the session, or the status and the message of an error. `log` is where ours are logged."""
    try:
        return 200, session.answer(question)
    except (OutOfMemory, MemoryError) as error:
        return 503, str(error) or "out of memory; try a shorter text"
    except UserError as error:
        return 400, str(error)
    except Exception:
        _log.exception("The explorer could not answer %.60r", question.get("ask"))
        return 500, f"a mistake of ours; {log} shows where"


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


async def static(request: Request) -> Response:
    """One of the page's files."""
    name: str = request.path_params["name"]
    if name not in FILES:
        raise HTTPException(404)
    try:
        return Response(static_file(name), media_type=FILES[name])
    except UserError as error:
        return failure(500, str(error))


def failure(status: int, error: str) -> Response:
    """A one-line error, in the form that the page reads."""
    return JSONResponse({"error": error}, status_code=status)


def refused(_: Request, error: Exception) -> Response:
    """Reports an HTTP error such as 404, 405 or 413."""
    assert isinstance(error, HTTPException)
    response = failure(error.status_code, str(error.detail))
    response.headers.update(error.headers or {})
    return response


def application(desk: Desk, *, token: str, cookie: str) -> ASGIApp:
    """The whole application, behind the guard."""
    app = Starlette(
        routes=[
            Route("/", shell),
            Route("/static/{name}", static),
            Route("/ask", desk.ask, methods=["POST"]),
        ],
        exception_handlers={HTTPException: refused},
    )
    app.router.redirect_slashes = False
    return Guard(app, token=token, cookie=cookie)
