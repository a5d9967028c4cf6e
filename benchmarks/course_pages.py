"""`python -m benchmarks.course_pages`: bytes and seconds of the course in a browser."""

import functools
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from benchmarks.entry import run_command
from clearhead.errors import UserError
from clearhead_lab.course.page import names
from clearhead_lab.course.site import WORK

if TYPE_CHECKING:
    from playwright.sync_api import Browser, CDPSession, Request

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
READY = ".clearhead main[aria-busy=false]"
# In every frame: when its explorer had computed and drawn, in milliseconds since 1970.
WATCH = """
if (window !== top) {
  const seen = new MutationObserver(() => {
    if (!document.querySelector("READY")) return;
    seen.disconnect();
    setTimeout(() => { window.usable = performance.timeOrigin + performance.now(); }, 0);
  });
  seen.observe(document, { childList: true, subtree: true, attributes: true, attributeFilter: ["aria-busy"] });
}
""".replace("READY", READY)

app = App(name="python -m benchmarks.course_pages", help="Bytes and seconds of the course's chapters in a browser.")


@dataclass
class Served:
    """A web server on the site, and the bytes of the files that it sent."""

    address: str
    sent: dict[str, int] = field(default_factory=dict[str, int])


@dataclass
class Opened:
    """A chapter that was opened once in a new browser profile, and read to its end."""

    chapter: str
    bytes: int
    """Of all files, with those that later figures load."""
    first: float | None
    """Seconds from the start of navigation until the first figure works; None for a page without one."""
    cpu: float
    """Of these, seconds of work of the page's main thread."""
    figures: int
    outside: int
    """Requests to other places than the site."""


class _Counting(SimpleHTTPRequestHandler):
    """Python's own server, which also counts."""

    def __init__(self, sent: dict[str, int], *rest: Any, **named: Any) -> None:
        self.sent = sent
        super().__init__(*rest, **named)

    def copyfile(self, source: Any, outputfile: Any) -> None:
        content = source.read()
        self.sent[self.path] = self.sent.get(self.path, 0) + len(content)
        outputfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@contextmanager
def served(site: Path) -> Iterator[Served]:
    """The site over HTTP, as `python -m http.server` serves it."""
    sent: dict[str, int] = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Counting, sent, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Served(f"http://127.0.0.1:{server.server_port}/", sent)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def opened(browser: "Browser", server: Served, chapter: str) -> Opened:
    """Opens a chapter, waits for its first figure, then goes through all of them."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(120_000)
    context.add_init_script(WATCH)
    page = context.new_page()
    outside: list[str] = []

    def asked(request: "Request") -> None:
        if not request.url.startswith((server.address, "data:", "blob:", "about:")):
            outside.append(request.url)

    context.on("request", asked)
    session = context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    server.sent.clear()
    before = _busy(session)
    at = "index.html" if chapter == "index" else f"course/{chapter}.html"
    page.goto(server.address + at, wait_until="commit")
    page.wait_for_load_state("domcontentloaded")
    frames = page.locator("iframe").all()
    first = None
    if frames:
        frames[0].content_frame.locator(READY).wait_for(state="attached")
        handle = frames[0].element_handle().content_frame()
        assert handle is not None
        # The policy of the page forbids `wait_for_function`.
        while (usable := handle.evaluate("window.usable")) is None:
            page.wait_for_timeout(10)
        first = (usable - page.evaluate("performance.timeOrigin")) / 1000
    cpu = _busy(session) - before
    for frame in frames:
        frame.scroll_into_view_if_needed()
        frame.content_frame.locator(READY).wait_for(state="attached")
    page.wait_for_timeout(500)
    context.close()
    return Opened(chapter, sum(server.sent.values()), first, cpu, len(frames), len(outside))


def _busy(session: "CDPSession") -> float:
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(one["value"] for one in metrics if one["name"] == "TaskDuration")


@app.default
def main(
    *chapters: str, rounds: int = 1, json_lines: Annotated[bool, Parameter(name="--json", negative="")] = False
) -> None:
    """Open every chapter over HTTP in a new profile; run `python -m clearhead_lab.course build` before.

    Args:
        chapters: Names of chapters (default: all).
        rounds: How often each is opened; the median of the seconds is printed.
        json_lines: Print one JSON object a chapter.
    """
    from playwright.sync_api import sync_playwright

    site = WORK / "site"
    if unknown := [chapter for chapter in chapters if chapter not in names()]:
        raise UserError(f"{unknown[0]}: expected one of {', '.join(names())}")
    if not (site / "index.html").is_file():
        raise UserError(f"{site}: expected the course's site, found none; run `python -m clearhead_lab.course build`")
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    with sync_playwright() as playwright, served(site) as server:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        _heat(browser, server)
        if not json_lines:
            print(f"{'chapter':14} {'KB':>7} {'first figure, s':>16} {'its CPU, s':>11} {'figures':>8} {'outside':>8}")
        for chapter in chapters or names():
            found = [opened(browser, server, chapter) for _ in range(rounds)]
            one = found[0]
            if one.first is not None:
                one.first = median(each.first or 0.0 for each in found)
            one.cpu = median(each.cpu for each in found)
            if json_lines:
                print(json.dumps(asdict(one)), flush=True)
                continue
            seconds = "" if one.first is None else f"{one.first:.2f}"
            print(
                f"{chapter:14} {one.bytes / 1000:7.0f} {seconds:>16} {one.cpu:11.2f} {one.figures:8} {one.outside:8}",
                flush=True,
            )
        browser.close()


def _heat(browser: "Browser", server: Served) -> None:
    """A page before the first one: the browser itself has started then."""
    page = browser.new_page()
    page.goto(server.address + "404.html")
    page.close()


if __name__ == "__main__":
    run_command(app)
