"""The page as one file, opened from a disk without a network."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead.explorer.export.page import html_of
from clearhead.explorer.session import Session
from tests.explorer.browser.page import Opened
from tests.explorer.export_fixtures import too_large


@dataclass
class OpenedFile(Opened):
    """A page that no server serves."""

    path: Path = Path()

    def go_to(self, fragment: str) -> None:
        self.page.goto("about:blank")
        self.page.goto(self.path.as_uri() + fragment)
        self.page.locator(".clearhead .page, .clearhead [role=alert]").first.wait_for()
        if self.page.locator("main").count():
            self.settled()

    def is_clean(self) -> None:
        assert self.chromium.complaints == []
        own = (self.path.as_uri(), "about:", "data:", "blob:")
        assert [url for url in self.chromium.requests if not url.startswith(own)] == []


def written(session: Session, path: Path, *, large: bool = False, **options: Any) -> Path:
    """The file of a session on its input, as of a `large` model or a small one."""
    with too_large() if large else nullcontext():
        path.write_bytes(html_of(session, session.start, **options))
    return path
