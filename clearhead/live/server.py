"""Serves the live page of a run to this machine alone. Imports no torch."""

import socket
import time
from contextlib import AbstractContextManager
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from clearhead.live.state import MOST_PAUSE, Watched
from clearhead.web.page import Server, TokenGuard, refused, serving_page

PAGE = Path(__file__).with_name("page")
FILES = {"index.html": "text/html", "live.js": "text/javascript", "live.css": "text/css"}


def serving(folder: Path, listener: socket.socket | None = None) -> AbstractContextManager[Server[Watched]]:
    """Serves the page of the run in a folder, on the listener's port or a free one, until the end of the block."""
    return serving_page(Watched(folder), application, listener, name="live page", before_end=tell_last)


def tell_last(watched: Watched) -> None:
    """Waits until the open page has received the newest state."""
    limit = time.monotonic() + 1.5 * MOST_PAUSE
    while not watched.is_told() and time.monotonic() < limit:
        time.sleep(0.05)


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
