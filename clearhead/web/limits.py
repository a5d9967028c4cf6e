"""Limits of the servers: on connections, on the time that a client may take, and on the memory of bodies."""

import asyncio
import logging
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from uvicorn.protocols.http.h11_impl import H11Protocol

SMALL = 1 << 16
"""Bytes of a body that are always accepted."""
TOTAL = 64_000_000
"""The limit for the further bytes of all bodies that are being read or parsed."""
MOST_PARTS = 100_000
"""The most lists, objects and fields in a body. A million take seconds and gigabytes and block all other threads."""
STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')


def parsed(body: bytes | bytearray) -> JsonValue:
    """The JSON value in a body. Raises ValueError if there is none, or if it has too many parts or is too deep."""
    if _parts(body) > MOST_PARTS and _parts(STRING.sub(b"", body)) > MOST_PARTS:
        raise ValueError(f"expected at most {MOST_PARTS:,} lists, objects and fields, got more")
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise ValueError(f"expected JSON; {error}") from None


def _parts(body: bytes | bytearray) -> int:
    return body.count(b"[") + body.count(b"{") + body.count(b":")


@dataclass
class Bodies:
    """Reads the bodies of one server's requests."""

    most: int
    """The most bytes of a body."""
    seconds: float
    """Seconds within which a body must arrive."""
    what: str
    """The name of a body in errors."""
    held: int = 0

    @asynccontextmanager
    async def of(self, request: Request) -> AsyncIterator[bytearray]:
        """The body of a request. It counts against the limits until the end of the block.

        Raises HTTPException if its type is not JSON, if it is too large or too slow, or if others take all the room.
        """
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise HTTPException(415, "content-type: expected application/json")
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > self.most:
            raise self._too_large()
        body, counted = bytearray(), 0
        try:
            try:
                async with asyncio.timeout(self.seconds):
                    async for chunk in request.stream():
                        if len(body) + len(chunk) > self.most:
                            raise self._too_large()
                        body += chunk
                        counted += self._take(max(0, len(body) - SMALL) - counted)
            except TimeoutError:
                raise HTTPException(408, f"{self.what}: expected all of it within {self.seconds:.0f} s") from None
            yield body
        finally:
            self.held -= counted

    def _take(self, n_bytes: int) -> int:
        if self.held + n_bytes > TOTAL:
            raise HTTPException(503, "too many large requests are being read; try again in a moment")
        self.held += n_bytes
        return n_bytes

    def _too_large(self) -> HTTPException:
        return HTTPException(413, f"{self.what}: expected at most {self.most:,} bytes, got more")


_log = logging.getLogger("clearhead")

SECONDS = 30.0
"""Seconds of a client's turn: to send the head of a request or its body, or to read more of the answer."""
MOST = 1024
"""The most open connections, if the system allows as many."""
LEAST = 16
BACKLOG = 8
"""Connections that are accepted in one turn of the event loop."""
RESERVE = 32 + 12 * BACKLOG
"""Descriptors reserved for files, and for connections that begin or end."""
MARGIN = 4 * BACKLOG
"""Connections beyond the limit that are kept if none can make room."""
QUEUE = 1024
"""Connections that may wait in the system to be accepted."""
QUIET_SECONDS = 60.0
"""Seconds between two warnings of one kind."""


class Connection(H11Protocol):
    """One client's connection. It ends if the client does nothing while the server waits for it.

    If there is no place for another connection, the one that the server has waited for longest makes room.
    """

    clock: asyncio.TimerHandle | None = None
    """Ends the connection if it runs out. It runs while the server waits for the client."""
    since = 0.0
    """When the client's turn began."""
    turn: tuple[object, ...] | None = None

    def awaited(self) -> tuple[object, ...] | None:
        """The client's next step, as a value that stays equal until it is done; None in the server's turn."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return ("request", cycle)
        if cycle.more_body:
            return ("body", cycle)
        return ("reading", cycle) if self.flow.write_paused else None

    def look(self) -> None:
        """Starts the clock when a turn of the client begins, and stops it when the turn ends."""
        turn = self.awaited()
        if turn == self.turn:
            return
        self.turn, self.since = turn, self.loop.time()
        if self.clock is not None:
            self.clock.cancel()
        self.clock = None if turn is None else self.loop.call_later(SECONDS, self.transport.abort)

    def make_room(self) -> None:
        """Hangs up on the client that the server has waited for longest, if there are too many connections."""
        most = (self.limit_concurrency or MOST) - MARGIN
        if len(self.connections) <= most:
            return
        others = [
            one
            for one in self.connections
            if isinstance(one, Connection) and one is not self and not one.transport.is_closing()
        ]
        waited_for = [one for one in others if one.clock is not None]
        if waited_for and len(others) >= most:
            min(waited_for, key=lambda one: one.since).transport.abort()

    # --- what happens to a connection ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.make_room()
        self.look()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.look()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.look()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.look()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.clock is not None:
            self.clock.cancel()

    def shutdown(self) -> None:
        """Ends with the server: drops a request that has not arrived, and finishes an answer under way."""
        super().shutdown()
        if self.turn is not None and self.turn[0] == "body":
            self.transport.abort()


class ConnectionErrors:
    """Logs failures of connections, each kind at most once a minute, because clients can cause them at will."""

    def __init__(self) -> None:
        self.last: dict[str, float] = {}

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An event loop's handler of exceptions."""
        error, now = context.get("exception"), time.monotonic()
        kind = type(error).__name__
        if now - self.last.get(kind, -QUIET_SECONDS) < QUIET_SECONDS:
            return
        self.last[kind] = now
        if isinstance(error, OSError):
            _log.warning("connections: %s (%s)", error.strerror or error, context["message"])
        else:
            loop.default_exception_handler(context)


def most_connections() -> int:
    """The number of connections for which the limit of open files leaves room."""
    if sys.platform == "win32":
        return MOST
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST
    n_open = sum(1 for _ in Path("/dev/fd").iterdir())
    return max(LEAST, min(MOST, soft - n_open - RESERVE))
