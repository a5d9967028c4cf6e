"""`clearhead explore`."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from clearhead.cli.options import Device, Files, Named, Repeated, Revision, Text, tell
from clearhead.cli.use.inputs import check_file, picture
from clearhead.errors import UserError

if TYPE_CHECKING:
    from clearhead.explorer.export.page import Format
    from clearhead.explorer.session import Session


def explore(
    model: Named,
    text: Text | None = None,
    /,
    *,
    target: Text | None = None,
    image: Path | None = None,
    data: Files = (),
    column: str | None = None,
    features: Repeated = (),
    compare: str | None = None,
    export: Path | None = None,
    live: Literal["int8", "int4"] | None = None,
    corrupt: Text | None = None,
    port: int | None = None,
    browser: bool = True,
    revision: Revision = None,
    device: Device = "cpu",
) -> None:
    """Look inside a model in a browser: every number, how it was computed, and what changes when you change it.

    Serves a page to this machine alone, prints its address and opens it; Ctrl-C ends it. The address contains a token,
    and whoever has it can use the model. From another machine, forward the port:
    `ssh -L 8000:127.0.0.1:8000 HOST` with --port 8000, and open the address there.

    With --export the page becomes one HTML file, which opens anywhere without a server or a network. The file contains
    the whole model if it is small, else its results for this text, also without each of its heads. With --live it
    contains a large model, too, in 8 or 4 bits, and computes every change in the page.

    Args:
        text: The first input; an image file if the model reads images (default: an example).
        target: Input of the decoder of an encoder-decoder (default: its own output).
        image: Picture within the text, at its mark or before it.
        data: Files of texts, as for capture, in which the page looks for examples (default: the run's own data).
        column: Column of the texts in them.
        features: Folders of `clearhead features train`, or of SAELens, to see and edit.
        compare: Another model of this architecture, or a checkpoint (RUN@STEP), to see how it differs.
        export: HTML file to write in place of serving.
        live: Put the model itself into the file, rounded to 8 or 4 bits.
        corrupt: Text of as many tokens; the file holds the circuit of the first text against it.
        port: Port of the page's server (default: a free one).
        browser: Open the page, where there is a display.
    """
    from clearhead.api.features import attach, load_features
    from clearhead.capture.texts import texts_in
    from clearhead.explorer.export.carried import refusal
    from clearhead.explorer.export.contents import is_live
    from clearhead.explorer.export.page import write
    from clearhead.explorer.static_files import check_built

    check_built()  # Before anything slow, like the check of the port.
    if live is not None and export is None:
        raise UserError(f"live: expected --export FILE beside it, got --live {live} alone; add --export page.html")
    if corrupt is not None and export is None:
        raise UserError("corrupt: expected --export FILE beside it, got it alone; type the text in the page's Circuits")
    for file in data:
        if "*" not in file:
            check_file(Path(file))
    given = texts_in(*data, text=column) if data else None

    def make() -> "Session":
        session = opened(model, revision, device, live, compare, text=text, target=target, data=given, image=image)
        attach(session.model.network, *(load_features(folder, session.model.network) for folder in features))
        return session

    if export is not None:
        session = make()
        print(write(session, export, corrupt=corrupt))
        if (reason := refusal(session, live=is_live(session))) is not None:
            tell(f"It reads only its own texts, because {reason}.")
        tell(f"{export.stat().st_size / 1e6:.1f} MB. Open it in a browser; it needs no network.")
        return
    serve(make, port=port or 0, browser=browser)


def serve(make: "Callable[[], Session]", *, port: int, browser: bool, fragment: str = "") -> None:
    """Serves a session until Ctrl-C, and prints its address. `make` is called once the port is free."""
    from clearhead.cli.failures import leave_unless
    from clearhead.explorer.hosting.server import serving
    from clearhead.machine.device import keep_freed_memory
    from clearhead.web import listen

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
    name: str, revision: str | None, device: str, live: "Format | None", compare: str | None, **begins: Any
) -> "Session":
    """A session with the model of a folder or a name, which `begins` with these inputs.

    `compare` names another model, of which the page shows how it differs. With `live` the model is rounded, for a
    file that shall hold it.
    """
    from clearhead.api import load
    from clearhead.explorer.answering.checkpoints import checkpoint_named
    from clearhead.explorer.answering.opened import UNNAMED
    from clearhead.explorer.export.page import rounded_model
    from clearhead.explorer.session import Session

    model, text = load(name, revision=revision, device=device), begins["text"]
    folder = Path(name) if Path(name).is_dir() else None
    if text is not None and model.reader.reads_images:
        begins["image"] = picture(text)
    elif begins["image"] is not None and model.config.pictures is None:
        raise UserError(f"--image {begins['image']}: expected none, as this model reads text alone; leave it out")
    # As it was typed, so that the page's Python finds it too; a dot says nothing.
    called = str(folder.resolve()) if folder and folder.name in ("", "..", UNNAMED) else name
    if compare is not None:
        begins |= {"compared": load(checkpoint_named(compare), device=device), "compared_name": compare}
    if live is not None:
        model, begins["matrices"] = rounded_model(model, live)
        folder = None
    return Session(model, name=called, folder=folder, revision=revision, **begins)


def show(url: str) -> None:
    """Opens the browser, or asks the user to. Runs in a thread, because it may take long."""
    from clearhead.web.page import open_browser

    if not open_browser(url):
        tell("Open the address above in a browser on this machine.")
