"""The files that tests write."""

from collections.abc import Iterable
from pathlib import Path


def put(path: str | Path, content: str | bytes | Iterable[str]) -> Path:
    """Writes bytes, a text in UTF-8, or lines of it."""
    path = Path(path)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else "\n".join(content), encoding="utf-8")
    return path
