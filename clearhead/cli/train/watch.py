"""`clearhead watch`, and the live page of `train` and `resume`. Imports no torch."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from clearhead.cli.options import tell
from clearhead.errors import UserError, pasted
from clearhead.recipe.places import METRICS, OWNER, RECIPE

if TYPE_CHECKING:
    from clearhead.live.state import Watched
    from clearhead.web.page import Server


def watch(run: Path, /, *, port: int | None = None, browser: bool = True) -> None:
    """Show a run in a browser while it trains, or afterwards: loss, scores, learning rate, speed, samples.

    Serves a page to this machine alone, prints its address and opens it; Ctrl-C ends it. The page reads what the run's
    folder records and renews itself. It may run beside the training, of which it takes nothing, and knows whether the
    run is running, paused, finished or stopped. The address contains a token, without which there is no page.

    Args:
        run: The run's folder, such as runs/translation-1.
        port: Port to serve on (default: a free one).
        browser: Open the page in a browser.
    """
    from clearhead.live.server import serving
    from clearhead.web import listen

    check_watchable(run)
    with listen(port or 0) as listener, serving(run, listener) as server:
        print(server.url, flush=True)
        tell(f"Watching {run}. Ctrl-C ends the page; the run goes on.")
        if browser:
            show(server)
        server.wait()


@contextmanager
def live_page(folder: Path) -> Iterator[None]:
    """Serves the live page of a run of this process, and opens it in a browser."""
    from clearhead.live.server import serving

    with serving(folder) as server:
        tell(f"live page: {server.url}")
        show(server)
        yield


def show(server: "Server[Watched]") -> None:
    """Opens the page in a browser if there is one. Returns at once, because that may take long."""
    from clearhead.web.page import open_browser

    threading.Thread(target=open_browser, args=(server.url,), name="browser", daemon=True).start()


def check_watchable(folder: Path) -> None:
    """Raises UserError unless a run has begun in the folder, or is about to."""
    if any((folder / name).is_file() for name in (RECIPE, METRICS, OWNER)):
        return
    inside = [path.parent for path in folder.glob(f"*/{RECIPE}")] if folder.is_dir() else []
    if inside:
        newest = max(inside, key=lambda path: (path / RECIPE).stat().st_mtime)
        remedy = f"try one in it, such as clearhead watch {pasted(newest)}"
    else:
        remedy = "try the one that clearhead train named, such as runs/translation-1"
    got = "one without a run" if folder.is_dir() else "a file" if folder.exists() else "none"
    raise UserError(f"{folder}: expected the folder of a run, got {got}; {remedy}")
