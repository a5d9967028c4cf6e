"""Runs the explorer's server on this machine, in a thread of its own."""

import errno
import os
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn

from clearhead.errors import UserError
from clearhead.explorer.server import Answers, Desk, application

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Server:
    """A server that runs."""

    port: int
    token: str
    ended: threading.Event

    @property
    def origin(self) -> str:
        """Where it is, without the token."""
        return f"http://{HOST}:{self.port}"

    @property
    def url(self) -> str:
        """The address to open; the token in it lets its holder see the model, and goes from the address bar at once."""
        return f"{self.origin}/?token={self.token}"

    def wait(self) -> None:
        """Until it ends, or Ctrl-C."""
        while not self.ended.wait(0.5):  # Without a limit, Windows would not let Ctrl-C through.
            pass


def listen(port: int = 0) -> socket.socket:
    """A socket that holds the port, 0 for a free one; UserError, one line, for one that cannot be had."""
    if not 0 <= port <= 65_535:
        raise UserError(f"port: expected 0 to 65535, got {port}; leave it out for a free one")
    try:
        listener = socket.create_server((HOST, port))
        # What it accepts has this too. asyncio leaves it out for a socket that names no protocol, and then the body of
        # an answer waits 40 ms for the browser to have acknowledged its head.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        got = f"{port}, which is taken" if taken else f"{port} ({(error.strerror or str(error)).lower()})"
        raise UserError(f"port: expected a free one, got {got}; try another, or leave it out") from None


@contextmanager
def serving(session: Answers, listener: socket.socket | None = None) -> Iterator[Server]:
    """Answer for the session, on a port of its own or on the listener's, until the end of the block.

    At the end the question that is being answered is waited for; those behind it are not answered.
    """
    listener = listener or listen()
    port: int = listener.getsockname()[1]
    token, desk = secrets.token_urlsafe(24), Desk(session)
    # Cookies know no ports: two explorers need two names.
    app = application(desk, token=token, cookie=f"clearhead-{port}")
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

    threading.Thread(target=run, name="explorer", daemon=True).start()
    try:
        yield Server(port, token, ended)
    finally:
        desk.is_open, runner.should_exit = False, True
        ended.wait()


def open_browser(url: str) -> bool:
    """Open an address in a browser; returns whether one took it.

    Where there is no display a text browser would take over the terminal, so none is tried.
    """
    is_headless = sys.platform not in ("darwin", "win32") and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.environ.get("BROWSER")
    )
    if is_headless:
        return False
    try:
        return webbrowser.open(url)
    except (webbrowser.Error, OSError):
        return False
