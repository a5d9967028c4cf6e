"""The files of the built page."""

import json
from pathlib import Path

from clearhead.errors import UserError

STATIC = Path(__file__).with_name("static")
FILES = {
    "explorer.js": "text/javascript",
    "file.js": "text/javascript",
    "boot.js": "text/javascript",
    "webgpu.js": "text/javascript",
    "tokenizers.js": "text/javascript",
    "explorer.css": "text/css",
    "LICENSES.txt": "text/plain",
}
"""The files of a page or an exported file, with their media types. The system's own table of types may be wrong."""


def static_file(name: str) -> bytes:
    """A file of the built page by its name: one of FILES, `texts.json`, or NAME.js and NAME.css of `exercises` and
    `training`.

    Raises UserError if it is missing, as in a checkout that was not installed.
    """
    path = STATIC / name
    if path.parent != STATIC or not path.is_file():
        raise UserError(
            f"{path}: expected the explorer's built page, found no such file; build it with `pip install -e .` "
            "in the checkout"
        )
    return path.read_bytes()


def check_built() -> None:
    """Raises UserError unless every file of the page is there."""
    for name in FILES:
        static_file(name)


def catalogues() -> dict[str, dict[str, str]]:
    """The page's texts by language and key. Empty if the page is not built."""
    try:
        return json.loads(static_file("texts.json"))
    except UserError:
        return {}
