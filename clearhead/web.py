"""What the servers of this package share: a port, a thread that answers on it, and reading JSON with limits."""

import asyncio
import errno
import re
import signal
import socket
import threading
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

import uvicorn
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp

from clearhead.errors import Interrupted, UserError

HOST = "127.0.0.1"
LOOPBACK = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.IGNORECASE)
"""Names of this machine, as they stand in a request: another name that leads here is a rebound one."""


def listen(port: int = 0, *, host: str = HOST) -> socket.socket:
    """A socket that holds the port, 0 for a free one; UserError, one line, for one that cannot be had."""
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


@dataclass(frozen=True)
class Running:
    """A server that answers, in a thread of its own."""

    runner: uvicorn.Server
    ended: threading.Event

    def stop(self) -> None:
        """End once what is being answered has been."""
        self.runner.should_exit = True
        self.ended.wait()


def answering(app: ASGIApp, listener: socket.socket, *, name: str, patience: int | None = None) -> Running:
    """Begin to answer; the listener is closed at the end. `patience`: seconds for open answers to end in."""
    runner = uvicorn.Server(
        uvicorn.Config(
            app,
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            log_level="error",
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=60,
            timeout_graceful_shutdown=patience,
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
    """Until it ends; Ctrl-C raises KeyboardInterrupt and SIGTERM Interrupted, after which open answers can end."""

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


async def read_json(request: Request, *, limit: int, seconds: float, what: str) -> bytes:
    """The body of a request that says it is JSON; HTTPException for one that is not, or too large or too slow."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "content-type: expected application/json")
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise HTTPException(413, f"{what}: expected at most {limit:,} bytes, got more")
    except TimeoutError:
        raise HTTPException(408, f"{what}: expected all of it within {seconds:.0f} s") from None
    return bytes(body)
