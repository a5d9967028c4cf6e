"""Serves one page to the user of this machine who holds its token."""

import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from starlette.types import ASGIApp

from clearhead.web import HOST, Running, answering, listen, wait

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Application(Protocol[T_contra]):
    """The application that shows something, behind a guard that asks for the token."""

    def __call__(self, shown: T_contra, /, *, token: str, cookie: str) -> ASGIApp: ...


@dataclass(frozen=True)
class Server(Generic[T]):
    """A running server of one page."""

    port: int
    token: str
    shown: T
    """What the page shows."""
    running: Running
    before_end: Callable[[T], object]

    @property
    def origin(self) -> str:
        """The server's address without the token."""
        return f"http://{HOST}:{self.port}"

    @property
    def url(self) -> str:
        """The address to open. Its token admits to the page, which removes it from the address bar."""
        return f"{self.origin}/?token={self.token}"

    @property
    def ended(self) -> threading.Event:
        """Set when the server has ended."""
        return self.running.ended

    def wait(self) -> None:
        """Waits until the server ends, or for Ctrl-C."""
        wait(self.ended)

    def end(self) -> None:
        """Ends the server, after a moment for open answers."""
        self.before_end(self.shown)
        self.running.stop()


@contextmanager
def serving_page(
    shown: T,
    application: Application[T],
    listener: socket.socket | None,
    *,
    name: str,
    before_end: Callable[[T], object],
) -> Iterator[Server[T]]:
    """Serves the application on the listener's port, or on a free one, until the end of the block."""
    listener = listener or listen()
    port: int = listener.getsockname()[1]
    token = secrets.token_urlsafe(24)
    # Cookies ignore ports, so two pages need two names.
    app = application(shown, token=token, cookie=f"clearhead-{port}")
    server = Server(port, token, shown, answering(app, listener, name=name), before_end)
    try:
        yield server
    finally:
        server.end()
