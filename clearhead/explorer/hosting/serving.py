"""Runs the explorer's server on this machine, in a thread of its own."""

import os
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from clearhead.explorer.hosting.server import Answers, Desk, application
from clearhead.training.machine import keep_freed_memory
from clearhead.web import HOST, Running, answering, listen, wait

__all__ = ["Server", "listen", "open_browser", "serving"]


@dataclass(frozen=True)
class Server:
    """A server that runs."""

    port: int
    token: str
    desk: Desk
    running: Running

    @property
    def ended(self) -> threading.Event:
        """Set at the end of all that it does."""
        return self.running.ended

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
        wait(self.ended)

    def end(self) -> None:
        """End soon: questions under way have a moment, those behind them are not answered."""
        self.desk.is_open = False
        self.running.stop()


@contextmanager
def serving(session: Answers, listener: socket.socket | None = None) -> Iterator[Server]:
    """Answer for the session, on a port of its own or on the listener's, until the end of the block.

    At the end the questions that are being answered have a moment; those behind them are not answered.
    """
    keep_freed_memory()
    listener = listener or listen()
    port: int = listener.getsockname()[1]
    token, desk = secrets.token_urlsafe(24), Desk(session)
    # Cookies know no ports: two explorers need two names.
    app = application(desk, token=token, cookie=f"clearhead-{port}")
    server = Server(port, token, desk, answering(app, listener, name="explorer"))
    try:
        yield server
    finally:
        server.end()


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
