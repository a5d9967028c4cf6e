"""`clearhead explore`."""

import threading
from pathlib import Path

from clearhead.api import load
from clearhead.commands import tell
from clearhead.errors import UserError
from clearhead.explorer.server import FILES
from clearhead.explorer.serving import listen, open_browser, serving
from clearhead.explorer.session import Session
from clearhead.explorer.static_files import static_file


def explore_command(
    name: str, text: str | None, *, target: str | None, port: int, browser: bool, revision: str | None, device: str
) -> None:
    """Serve the explorer on a model until Ctrl-C; its address is the one line on standard output."""
    for file in FILES:  # Before anything takes long, as is the port.
        static_file(file)
    with listen(port) as listener:
        model = load(name, revision=revision, device=device)
        folder = Path(name) if Path(name).is_dir() else None
        called = folder.resolve().name if folder else name
        image = image_at(text) if text is not None and model.reader.reads_images else None
        session = Session(model, name=called, folder=folder, text=text, target=target, image=image)
        with serving(session, listener) as server:
            print(server.url, flush=True)
            tell(f"Exploring {called}. Ctrl-C ends it.")
            if browser:
                threading.Thread(target=show, args=(server.url,), daemon=True).start()
            server.wait()


def image_at(name: str) -> Path:
    """An image to begin with; UserError where there is none."""
    if not Path(name).is_file():
        raise UserError(f"{name}: expected an image file, as this model reads images, found none; try another path")
    return Path(name)


def show(url: str) -> None:
    """Open the browser, or say that somebody has to; it may take as long as it likes."""
    if not open_browser(url):
        tell("Open the address above in a browser on this machine.")
