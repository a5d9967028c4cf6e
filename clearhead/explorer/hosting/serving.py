"""Runs the explorer's server in a thread of its own."""

import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from clearhead.explorer.hosting.server import Answers, Desk, application
from clearhead.machine.device import keep_freed_memory
from clearhead.web import HOST, Running, answering, listen, wait
from clearhead.web.browser import open_browser

__all__ = ["Server", "listen", "open_browser", "serving"]


@dataclass(frozen=True)
class Server:
    """A running server."""

    port: int
    token: str
    desk: Desk
    running: Running

    @property
    def ended(self) -> threading.Event:
        """Set when the server has ended."""
        return self.running.ended

    @property
    def origin(self) -> str:
        """Its address without the token."""
        return f"http://{HOST}:{self.port}"

    @property
    def url(self) -> str:
        """The address to open. Its token gives access to the model; the page removes it from the address bar."""
        return f"{self.origin}/?token={self.token}"

    def wait(self) -> None:
        """Waits until the server ends, or for Ctrl-C."""
        wait(self.ended)

    def end(self) -> None:
        """Ends the server. Questions that are being answered have a moment; waiting ones get no answer."""
        self.desk.is_open = False
        self.running.stop()


@contextmanager
def serving(session: Answers, listener: socket.socket | None = None) -> Iterator[Server]:
    """Serves the session, on the listener's port or a free one, until the end of the block."""
    keep_freed_memory()
    listener = listener or listen()
    port: int = listener.getsockname()[1]
    token, desk = secrets.token_urlsafe(24), Desk(session)
    # Cookies ignore ports, so two explorers need two names.
    app = application(desk, token=token, cookie=f"clearhead-{port}")
    server = Server(port, token, desk, answering(app, listener, name="explorer"))
    try:
        yield server
    finally:
        server.end()
