"""A server of a few answers for tests, on loopback, and clients that send it bytes."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from clearhead.web import Bodies, Running, answering, listen

HOLD = 30
"""Seconds after which a wait of a test has failed."""
WELL = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
HALF_A_BODY = b"POST /body HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
REFUSED_IN_ITS_BODY = HALF_A_BODY.replace(b"application/json", b"text/plain")
UNREAD = b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def well(_: Request) -> Response:
    return PlainTextResponse("well")


async def body(request: Request) -> Response:
    try:
        async with Bodies(1000, HOLD, "body").of(request) as content:
            return PlainTextResponse(str(len(content)))
    except ClientDisconnect:
        return PlainTextResponse("gone")


async def endless(_: Request) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(0)  # Others have their turns, as they have where an answer is computed.
            yield bytes(1 << 16)

    return StreamingResponse(pieces())


@contextmanager
def served() -> Iterator[tuple[int, Running]]:
    """A server on a port of its own; ended afterwards, whatever is still open."""
    app = Starlette(routes=[Route("/", well), Route("/body", body, methods=["POST"]), Route("/endless", endless)])
    listener = listen()
    port: int = listener.getsockname()[1]
    running = answering(app, listener, name="test")
    try:
        yield port, running
    finally:
        assert running.stop()


def client(port: int, sent: bytes = b"") -> socket.socket:
    """A client that has sent this."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=HOLD)
    connection.sendall(sent)
    return connection


def status(port: int, request: bytes = WELL) -> bytes:
    """The status of the answer to a request."""
    with client(port, request) as connection:
        return connection.recv(1 << 16)[9:12]


def is_hung_up(connection: socket.socket) -> bool:
    """Whether the server ends the connection, after what it has to say; TimeoutError where it does not."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    return True
