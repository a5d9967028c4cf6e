"""Serves one page to the user of this machine who holds its token."""

import os
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request, cookie_parser
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clearhead.web import HOST, Running, answering, bearer, listen, origin_error, wait

POLICY = (
    *("default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data: blob:"),
    *("connect-src 'self'", "font-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"),
)
HEADERS = {
    "Content-Security-Policy": "; ".join(POLICY),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""For every response. No cache, because another version of the package may use this address later."""


class TokenGuard:
    """Admits requests of this machine and of the page itself that carry the token. Adds `HEADERS` to every response.

    Only the names of this machine are hosts, because any other name that leads here was rebound by DNS. Any port will
    do, because ports may be forwarded. The token comes in the first address and then in a cookie, or as a bearer token.
    `command` is the command that prints the address.
    """

    def __init__(self, app: ASGIApp, *, token: str, cookie: str, command: str) -> None:
        self.app, self.token, self.cookie, self.command = app, token.encode(), cookie, command

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        if scope["type"] == "http":
            app = self.refusal(scope) or self.entry(scope) or self.app
            await app(scope, receive, sealed)

    def refusal(self, scope: Scope) -> Response | None:
        """403 for another host or origin, 401 without the token."""
        headers = Headers(scope=scope)
        if (why := origin_error(headers)) is not None:
            return failure(403, why)
        given = [self.in_address(scope), cookie_parser(headers.get("cookie", "")).get(self.cookie), bearer(headers)]
        if not any(self.is_token(one) for one in given):
            return failure(401, f"token: expected the one that `{self.command}` printed; open the whole address")
        return None

    def entry(self, scope: Scope) -> Response | None:
        """The answer to the first address: the token goes into a cookie, and out of the address.

        The cookie is lax, because browsers do not send a strict one after a link on another page, such as a terminal
        in a browser. Questions are POST requests, with which other sites cannot send a lax cookie.
        """
        if not self.is_token(self.in_address(scope)):
            return None
        response = RedirectResponse("/", status_code=303)
        response.set_cookie(self.cookie, self.token.decode(), httponly=True, samesite="lax")
        return response

    def in_address(self, scope: Scope) -> str | None:
        """The token of an address `/?token=…`."""
        query: bytes = scope["query_string"]
        is_first = scope["path"] == "/" and scope["method"] in ("GET", "HEAD")
        return parse_qs(query.decode("latin-1")).get("token", [None])[0] if is_first else None

    def is_token(self, given: str | None) -> bool:
        """Returns True if `given` is the token; compares them in constant time."""
        return given is not None and secrets.compare_digest(given.encode(), self.token)


def failure(status: int, error: str) -> Response:
    """A one-line error, in the form that the page reads."""
    return JSONResponse({"error": error}, status_code=status)


def refused(_: Request, error: Exception) -> Response:
    """Reports an HTTP error such as 404, 405 or 413."""
    assert isinstance(error, HTTPException)
    response = failure(error.status_code, str(error.detail))
    response.headers.update(error.headers or {})
    return response


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


def open_browser(url: str) -> bool:
    """Opens an address in a browser; returns whether that worked.

    Without a display it tries none, because a text browser would take over the terminal.
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
