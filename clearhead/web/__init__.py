"""The common part of the servers: a port, a thread that answers on it, and limits for clients."""

import asyncio
import errno
import re
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

import uvicorn
from starlette.datastructures import Headers
from starlette.types import ASGIApp

from clearhead.errors import Interrupted, UserError
from clearhead.web.limits import (
    BACKLOG,
    MARGIN,
    QUEUE,
    SECONDS,
    Bodies,
    Connection,
    ConnectionErrors,
    most_connections,
    parsed,
)

__all__ = ["HOST", "LOOPBACK", "Bodies", "Running", "answering", "bearer", "listen", "origin_error", "parsed", "wait"]

HOST = "127.0.0.1"
PATIENCE = 1.0
"""Seconds for open answers to finish when the server ends."""
READERS = 2
"""Threads that parse and tokenize requests, in order."""
LOOPBACK = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.IGNORECASE)
"""This machine's names in a request. Any other name that leads here was rebound by DNS."""


def listen(port: int = 0, *, host: str = HOST) -> socket.socket:
    """A socket that holds the port, 0 for a free one. Raises UserError if the port cannot be used."""
    if not 0 <= port <= 65_535:
        raise UserError(f"port: expected 0 to 65535, got {port}; leave it out for a free one")
    try:
        listener = socket.create_server((host, port))
        # What it accepts has this too. asyncio leaves it out for a socket that names no protocol, and then the body of
        # an answer waits 40 ms for the browser to have acknowledged its head.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except socket.gaierror:
        raise UserError(f"host: expected an address of this machine, got {host}; try {HOST}") from None
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise UserError(f"host: expected an address of this machine, got {host}; try {HOST}") from None
        taken = error.errno == errno.EADDRINUSE
        got = f"{port}, which is taken" if taken else f"{port} ({(error.strerror or str(error)).lower()})"
        raise UserError(f"port: expected a free one, got {got}; try another, or leave it out") from None


def origin_error(headers: Headers) -> str | None:
    """Why a request is refused that another site sent, or that another name led here; None for any other request."""
    hosts, origins = headers.getlist("host"), headers.getlist("origin")
    if len(hosts) != 1 or not LOOPBACK.fullmatch(hosts[0]):
        return "host: expected this machine, such as 127.0.0.1, got another name"
    if origins not in ([], [f"http://{hosts[0]}"]):
        return "origin: expected a program or this server's own pages, got another site"
    return None


def bearer(headers: Headers) -> str | None:
    """The bearer token of a request."""
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


class Runner(uvicorn.Server):
    """A server that finishes open answers for at most `PATIENCE` seconds after it is told to end."""

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serves until the end. Only few threads read requests, so that the network keeps its cores."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(ConnectionErrors())
        loop.set_default_executor(ThreadPoolExecutor(READERS, thread_name_prefix="reader"))
        await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts to listen. More connections can wait in the system than are accepted at once."""
        await super().startup(sockets)
        for listener in sockets or []:
            listener.listen(QUEUE)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Lets open answers end, then hangs up on the clients that keep them open."""
        asyncio.get_running_loop().call_later(PATIENCE, self.hang_up)
        await super().shutdown(sockets)

    def hang_up(self) -> None:
        """Closes every connection at once."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()


@dataclass(frozen=True)
class Running:
    """A server that answers, in a thread of its own."""

    runner: uvicorn.Server
    ended: threading.Event

    def stop(self) -> bool:
        """Tells the server to end. Returns whether it has ended, because a long computation may still run."""
        self.runner.should_exit = True
        return self.ended.wait(PATIENCE + 0.2)


def answering(app: ASGIApp, listener: socket.socket, *, name: str) -> Running:
    """Starts a server on the listener, in a thread of its own. The server closes the listener when it ends."""
    runner = Runner(
        uvicorn.Config(
            app,
            loop="asyncio",
            http=Connection,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            log_level="error",
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
            limit_concurrency=most_connections() + MARGIN,
            timeout_keep_alive=int(SECONDS),
        )
    )
    # Waited for by an event: a join that Ctrl-C interrupts takes the thread for ended.
    ended = threading.Event()

    def run() -> None:
        try:
            runner.run([listener])
        finally:
            listener.close()
            ended.set()

    threading.Thread(target=run, name=name, daemon=True).start()
    return Running(runner, ended)


def wait(ended: threading.Event) -> None:
    """Waits for the end. Ctrl-C raises KeyboardInterrupt and SIGTERM Interrupted, after which open answers can end."""

    def end(number: int, _: FrameType | None) -> NoReturn:
        raise Interrupted("stopped by SIGTERM", number)

    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, end) if is_main else None
    try:
        while not ended.wait(0.5):  # Without a limit, Windows would not let Ctrl-C through.
            pass
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, before)
