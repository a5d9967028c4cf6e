"""Opens an address in a browser."""

import os
import sys
import webbrowser


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
