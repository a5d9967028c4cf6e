"""`Model.explore`: the explorer as a widget in a notebook, elsewhere in the browser."""

import atexit
import logging
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, cast

from pydantic import JsonValue

from clearhead.api import Model
from clearhead.api.reader import Texts
from clearhead.errors import UserError
from clearhead.explorer.answering.opened import UNNAMED
from clearhead.explorer.hosting.server import AT_ONCE, Answers, answered, serving
from clearhead.explorer.session import Session
from clearhead.explorer.static_files import check_built, static_file
from clearhead.web.page import open_browser

if TYPE_CHECKING:
    from anywidget import AnyWidget

    from clearhead.data.images import Picture

_log = logging.getLogger("clearhead")

POOL = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="explorer")
"""Answers the questions of all widgets. One pool is enough, because one lock lets one of them compute."""

Send = Callable[[dict[str, JsonValue], list[bytes]], None]


def explore(
    model: Model, text: str | None, target: str | None, image: "Picture | None", data: Texts, compare: Model | None
) -> "AnyWidget | ExplorerInBrowser":
    """The explorer on a model, beginning with this input: a widget in a notebook, else a page in the browser.

    Raises UserError for data that are no texts, or none that the model reads.
    """
    _check(model, text, target, image)
    if isinstance(data, str):
        raise UserError("explore: expected data as a list of texts, got one text; try data=[text]")
    check_built()
    texts = None if data is None else list(data)
    session = Session(model, name=UNNAMED, text=text, target=target, image=image, data=texts, compared=compare)
    return widget(session) if in_notebook() else ExplorerInBrowser(session)


def _check(model: Model, text: object, target: object, image: object) -> None:
    """Raises UserError for an input that the model does not read."""
    for given in (text, target):
        if not isinstance(given, str | None):
            raise UserError(f"explore: expected one text, got {type(given).__name__}; an image is given as image=…")
    if model.reader.reads_images and (text is not None or target is not None):
        raise UserError("explore: expected an image, as this model reads images, got a text; try explore(image=…)")
    reads_pictures = model.reader.reads_images or model.config.pictures is not None
    if not reads_pictures and image is not None:
        raise UserError("explore: expected a text, as this model reads texts, got an image; try explore(text)")


def in_notebook() -> bool:
    """Returns True if this process is the kernel of a notebook: IPython's (Jupyter, VS Code, Colab) or marimo's.

    A kernel has imported its own package, so this function imports nothing.
    """
    ipython, marimo = sys.modules.get("IPython"), sys.modules.get("marimo")
    shell = None if ipython is None else ipython.get_ipython()
    if getattr(shell, "kernel", None) is not None:  # A terminal's shell has none.
        return True
    return marimo is not None and cast("bool", marimo.running_in_notebook())


# --- in a notebook ---


class Messages:
    """Answers the questions of a widget's pages in worker threads, so that a long one delays nothing else.

    A page sends {id, question}, or {id, cancel: true} if it no longer waits. The answer is {id} with the reply, a
    safetensors file, as the only buffer, or {id, error}. A widget may be shown several times, so each page counts from
    a number of its own. These are messages and not synced state because notebooks do not save messages.
    """

    def __init__(self, session: Answers, send: Send) -> None:
        """`send` is called from several threads."""
        self._session, self._send = session, send
        self._waiting: dict[int, threading.Event] = {}
        """By number, what is set once the page no longer waits."""

    def receive(self, _widget: object, message: Mapping[str, JsonValue], _buffers: object) -> None:
        """Handles a message of a page. Logs a message of another form and does not answer it."""
        match message:
            case {"id": int(number), "question": dict(question)}:
                left = self._waiting[number] = threading.Event()
                POOL.submit(self._answer, number, question, left)
            case {"id": int(number), "cancel": True}:
                self._cancel(number)
            case _:
                _log.warning("The explorer got a message that it does not know: %.60r", message)

    def close(self) -> None:
        """Stops answering."""
        for number in list(self._waiting):
            self._cancel(number)

    def _cancel(self, number: int) -> None:
        left = self._waiting.pop(number, None)
        if left is not None:
            left.set()

    def _answer(self, number: int, question: Mapping[str, JsonValue], left: threading.Event) -> None:
        if left.is_set():
            return
        _, said = answered(self._session, question, left, log="the notebook's output or log")
        if self._waiting.pop(number, None) is not None:
            if isinstance(said, bytes):
                self._send({"id": number}, [said])
            else:
                self._send({"id": number, "error": said}, [])


def widget(session: Answers) -> "AnyWidget":
    """The page as a widget. Raises UserError if the package anywidget is not installed."""
    try:
        import anywidget
    except ImportError:
        raise UserError(
            "explore: expected the package anywidget, which shows the explorer in a notebook, found none; "
            "try pip install 'clearhead[notebook]'"
        ) from None

    class Explorer(anywidget.AnyWidget):
        _esm = static_file("explorer.js").decode()
        _css = static_file("explorer.css").decode()

        def __init__(self) -> None:
            self._messages = Messages(session, self.send)
            super().__init__()
            self.on_msg(self._messages.receive)

        def __repr__(self) -> str:
            return "The explorer of a clearhead model. It is shown while the notebook runs."

        def close(self) -> None:
            self._messages.close()
            super().close()

    return Explorer()


# --- elsewhere ---


class ExplorerInBrowser:
    """An explorer in the browser, served from this process until `close` or the end of the process."""

    def __init__(self, session: Answers) -> None:
        self._running = ExitStack()
        self._server = self._running.enter_context(serving(session))
        atexit.register(self.close)  # Also keeps this object alive if the caller drops it.
        threading.Thread(target=self._show, name="browser", daemon=True).start()

    def __repr__(self) -> str:
        """Where it is."""
        return "Explorer, closed" if self._server.ended.is_set() else f"Explorer at {self.url} until close()"

    @property
    def url(self) -> str:
        """The address to open. Its token gives access to the model."""
        return self._server.url

    def wait(self) -> None:
        """Waits until it is closed, or for Ctrl-C; for the end of a script."""
        self._server.wait()

    def close(self) -> None:
        """Ends the server. An open page stays as it is, without further answers."""
        atexit.unregister(self.close)
        self._running.close()
        self._server.ended.wait()  # The interpreter must not exit while a thread computes.

    def _show(self) -> None:
        """Opens the browser, or logs the address to open."""
        if not open_browser(self.url):
            _log.warning("Open %s in a browser on this machine.", self.url)
