"""Serves the live page of a run to this machine alone. Imports no torch."""

import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from clearhead.live.state import MOST_PAUSE, Watched
from clearhead.web import HOST, Running, answering, listen, wait
from clearhead.web.guard import TokenGuard, refused

PAGE = Path(__file__).with_name("page")
FILES = {"index.html": "text/html", "live.js": "text/javascript", "live.css": "text/css"}


@dataclass(frozen=True)
class Server:
    """A running server of one run's page."""

    port: int
    token: str
    watched: Watched
    running: Running

    @property
    def origin(self) -> str:
        """Its address without the token."""
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
        """Ends the server, once an open page has what is newest."""
        limit = time.monotonic() + 1.5 * MOST_PAUSE
        while not self.watched.is_told() and time.monotonic() < limit:
            time.sleep(0.05)
        self.running.stop()


@contextmanager
def serving(folder: Path, listener: socket.socket | None = None) -> Iterator[Server]:
    """Serves the page of the run in a folder, on the listener's port or a free one, until the end of the block."""
    listener = listener or listen()
    port: int = listener.getsockname()[1]
    token, watched = secrets.token_urlsafe(24), Watched(folder)
    # Cookies ignore ports, so two pages need two names.
    app = application(watched, token=token, cookie=f"clearhead-{port}")
    server = Server(port, token, watched, answering(app, listener, name="live page"))
    try:
        yield server
    finally:
        server.end()


def application(watched: Watched, *, token: str, cookie: str) -> ASGIApp:
    """The page, its files and the state of the run, behind the guard."""

    def state(request: Request) -> Response:
        """The state as JSON; nothing (204) if the page has seen its version."""
        found = watched.state(request.query_params.get("seen", ""))
        return Response(status_code=204) if found is None else JSONResponse(found)

    routes = [Route("/", _file), Route("/static/{name}", _file), Route("/state", state)]
    app = Starlette(routes=routes, exception_handlers={HTTPException: refused})
    app.router.redirect_slashes = False
    return TokenGuard(app, token=token, cookie=cookie, command="clearhead watch")


def _file(request: Request) -> Response:
    """One of the page's files."""
    name = str(request.path_params.get("name", "index.html"))
    if name not in FILES:
        raise HTTPException(404)
    return Response((PAGE / name).read_bytes(), media_type=FILES[name])
