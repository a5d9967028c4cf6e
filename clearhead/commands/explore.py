"""`clearhead explore`."""

import threading
from collections.abc import Callable
from pathlib import Path

from clearhead.api import load
from clearhead.commands import tell
from clearhead.commands.ending import leave_unless
from clearhead.errors import UserError
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
    export: Path | None,
    live: Format | None = None,
    port: int,
    browser: bool,
    revision: str | None,
    device: str,
) -> None:
    """Serves the explorer on a model until Ctrl-C, or writes it to a file. Prints one line: the address."""
    check_built()  # Before anything slow, like the check of the port.
    if live is not None and export is None:
        raise UserError(f"live: expected --export FILE beside it, got --live {live} alone; add --export page.html")
    if export is not None:
        print(write(opened(name, text, target=target, revision=revision, device=device, live=live), export))
        tell(f"{export.stat().st_size / 1e6:.1f} MB. Open it in a browser; it needs no network.")
        return
    serve(lambda: opened(name, text, target=target, revision=revision, device=device), port=port, browser=browser)


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
    name: str, text: str | None, *, target: str | None, revision: str | None, device: str, live: Format | None = None
) -> Session:
    """A session with the model of a folder or a name, rounded if a file shall hold it, and its first input."""
    model = load(name, revision=revision, device=device)
    folder = Path(name) if Path(name).is_dir() else None
    image = Path(text) if text is not None and model.reader.reads_images else None
    if image is not None and not image.is_file():
        raise UserError(f"{image}: expected an image file, as this model reads images, found none; try another path")
    # As it was typed, so that the page's Python finds it too; a dot says nothing.
    called = str(folder.resolve()) if folder and folder.name in ("", "..") else name
    if live is not None:
        model, matrices = rounded_model(model, live)
        return Session(model, name=called, text=text, target=target, image=image, matrices=matrices)
    return Session(model, name=called, folder=folder, text=text, target=target, image=image)


def show(url: str) -> None:
    """Opens the browser, or asks the user to. Runs in a thread, because it may take long."""
    if not open_browser(url):
        tell("Open the address above in a browser on this machine.")
