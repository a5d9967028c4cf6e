"""`clearhead explore`."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from clearhead.api import load
from clearhead.api.features import attach, features_named
from clearhead.capture.texts import Texts, texts_in
from clearhead.cli.ending import leave_unless
from clearhead.cli.options import tell
from clearhead.cli.use.translate import check_file
from clearhead.errors import UserError
from clearhead.explorer.answering.moments import checkpoint_named
from clearhead.explorer.answering.opened import UNNAMED
from clearhead.explorer.export.page import Format, rounded_model, write
from clearhead.explorer.hosting.serving import serving
from clearhead.explorer.session import Session
from clearhead.explorer.static_files import check_built
from clearhead.machine.device import keep_freed_memory
from clearhead.web import listen
from clearhead.web.browser import open_browser


def explore_command(
    name: str,
    text: str | None,
    *,
    target: str | None,
    features: Sequence[str] = (),
    export: Path | None,
    live: Format | None = None,
    corrupt: str | None = None,
    port: int,
    browser: bool,
    revision: str | None,
    device: str,
    data: Sequence[str] = (),
    column: str | None = None,
    compare: str | None = None,
) -> None:
    """Serves the explorer on a model until Ctrl-C, or writes it to a file. Prints one line: the address."""
    check_built()  # Before anything slow, like the check of the port.
    if live is not None and export is None:
        raise UserError(f"live: expected --export FILE beside it, got --live {live} alone; add --export page.html")
    if corrupt is not None and export is None:
        raise UserError("corrupt: expected --export FILE beside it, got it alone; type the text in the page's Circuits")
    for file in data:
        if "*" not in file:
            check_file(Path(file))
    given = texts_in(*data, text=column) if data else None

    def make() -> Session:
        begins: dict[str, Any] = {"target": target, "data": given, "live": live, "compare": compare}
        session = opened(name, text, revision=revision, device=device, **begins)
        attach_all(session, features)
        return session

    if export is not None:
        print(write(make(), export, corrupt=corrupt))
        tell(f"{export.stat().st_size / 1e6:.1f} MB. Open it in a browser; it needs no network.")
        return
    serve(make, port=port, browser=browser)


def serve(make: Callable[[], Session], *, port: int, browser: bool, fragment: str = "") -> None:
    """Serves a session until Ctrl-C, and prints its address. `make` is called once the port is free."""
    keep_freed_memory()  # Before other threads have their own arenas.
    with listen(port) as listener:
        session = make()
        with serving(session, listener) as server:
            try:
                address = server.url + fragment
                print(address, flush=True)
                tell(f"Exploring {session.name}. Ctrl-C ends it.")
                if browser:
                    threading.Thread(target=show, args=(address,), daemon=True).start()
                server.wait()
            finally:
                try:
                    server.end()
                finally:
                    leave_unless(server.ended.is_set())


def opened(
    name: str,
    text: str | None,
    *,
    target: str | None,
    revision: str | None,
    device: str,
    data: Texts | None = None,
    live: Format | None = None,
    compare: str | None = None,
) -> Session:
    """A session with the model of a folder or a name, its first input, and the texts of its examples.

    `compare` names another model, of which the page shows how it differs. With `live` the model is rounded, for a
    file that shall hold it.
    """
    model = load(name, revision=revision, device=device)
    folder = Path(name) if Path(name).is_dir() else None
    image = Path(text) if text is not None and model.reader.reads_images else None
    if image is not None and not image.is_file():
        raise UserError(f"{image}: expected an image file, as this model reads images, found none; try another path")
    # As it was typed, so that the page's Python finds it too; a dot says nothing.
    called = str(folder.resolve()) if folder and folder.name in ("", "..", UNNAMED) else name
    given: dict[str, Any] = {"text": text, "target": target, "image": image, "data": data, "revision": revision}
    if compare is not None:
        given |= {"compared": load(checkpoint_named(compare), device=device), "compared_name": compare}
    if live is not None:
        model, given["matrices"] = rounded_model(model, live)
        folder = None
    return Session(model, name=called, folder=folder, **given)


def attach_all(session: Session, folders: Sequence[str]) -> None:
    """Attaches the features of each folder, or of one of its layers: FOLDER:LAYER."""
    network = session.model.network
    attach(network, *(features_named(folder, network) for folder in folders))


def show(url: str) -> None:
    """Opens the browser, or asks the user to. Runs in a thread, because it may take long."""
    if not open_browser(url):
        tell("Open the address above in a browser on this machine.")
