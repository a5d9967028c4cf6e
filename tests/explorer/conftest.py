"""A real browser for the pages: `chromium_page` skips by name where there is none, but fails in CI."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Response

EXECUTABLES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first has no window to draw: a page takes a fifth of the time."""
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@dataclass
class ChromiumPage:
    """A page, with everything it complained about and every address it asked for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """What a server would not answer, with the question."""

    def open(self, file: Path) -> Page:
        self.page.goto(file.as_uri())
        return self.page

    def __post_init__(self) -> None:
        def console(message: ConsoleMessage) -> None:
            self.complaints.append(f"{message.type}: {message.text}")

        def failed(error: Exception) -> None:
            self.complaints.append(f"uncaught: {error}")

        def asked(request: Request) -> None:
            self.requests.append(request.url)

        def answered(response: Response) -> None:
            if response.status >= 400:  # The console tells neither the question nor the answer.
                self.refused.append(f"{response.status} {response.url}: {(response.request.post_data or '')[:2000]}")

        self.page.on("console", console)
        self.page.on("pageerror", failed)
        self.page.on("request", asked)
        self.page.on("response", answered)


def _missing(what: str) -> NoReturn:
    message = f"browser tests need {what}"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    executable = next(filter(None, map(shutil.which, EXECUTABLES)), None)
    if executable is None:
        _missing("chromium on the path (Debian: apt-get install chromium)")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("the package playwright (pip install playwright)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=_ARGUMENTS)  # a fresh profile each time
        yield browser
        browser.close()


@pytest.fixture
def chromium_page(chromium: Browser) -> Iterator[ChromiumPage]:
    """A fresh page, 1440 x 900 and light, in a profile of its own."""
    context = chromium.new_context(viewport={"width": 1440, "height": 900}, color_scheme="light")
    context.set_default_timeout(10_000)
    yield ChromiumPage(context.new_page())
    context.close()
