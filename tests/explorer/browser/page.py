"""The page as a reader uses it, and as a test reads it."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

from clearhead.api import Model
from clearhead.explorer.answering.passes import LOCK
from clearhead.explorer.hosting.server import QuestionQueue
from clearhead.explorer.session import Session
from clearhead.trace import Trace
from clearhead.web.page import Server
from tests.explorer.conftest import ChromiumPage

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, Request
    from torch import Tensor

T = TypeVar("T")
PLAIN = {
    "v",
    "s",
    "t",
    "view",
    "zoom",
    "step",
    "stack",
    "part",
    "side",
    "mode",
    "layer",
    "head",
    "query",
    "key",
    "walk",
    "stop",
    "form",
    "present",
    "moment",
    "set",
    "feature",
}
SECONDS = 8.0


@dataclass(frozen=True)
class Served:
    """A model and the server that shows it."""

    model: Model
    session: Session
    server: Server[QuestionQueue]

    def trace(self, text: Any, target: str | None = None, **edit: Any) -> tuple[Trace, Tensor]:
        """Python's own forward pass. Only one trace runs at a time, and the server makes some too."""
        return self.traced(self.model, text, target, **edit)

    @staticmethod
    def traced(model: Model, text: Any, target: str | None = None, **edit: Any) -> tuple[Trace, Tensor]:
        """The same of another model."""
        with LOCK:
            return model.trace(text, target, **edit)


def fragment(text: str, target: str | None = None, **fields: Any) -> str:
    """A permalink's: what is not plain text in it goes into one field of JSON."""
    plain = {"v": 1, "s": text} | ({} if target is None else {"t": target})
    plain |= {name: value for name, value in fields.items() if name in PLAIN}
    rest = {name: value for name, value in fields.items() if name not in PLAIN}
    if rest:
        plain["e"] = base64.urlsafe_b64encode(json.dumps(rest).encode()).decode().rstrip("=")
    return f"#{urlencode(plain)}"


def eventually(check: Callable[[], T], seconds: float = SECONDS) -> T:
    """What `check` returns once it raises no error of these kinds: a page on its way has fewer rows and figures."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return check()
        except (AssertionError, ValueError, LookupError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.03)


def becomes(read: Callable[[], T], wanted: T, seconds: float = SECONDS) -> None:
    """Until this is what is read."""

    def is_so() -> None:
        assert read() == wanted

    eventually(is_so, seconds)


def said(read: Callable[[], str | None], part: str = "") -> str:
    """What is read, once there is something, with this in it."""

    def found() -> str:
        text = read()
        assert text
        assert part in text
        return text

    return eventually(found)


@dataclass
class Opened:
    """The page, open on a model."""

    served: Served
    chromium: ChromiumPage
    may_fail: bool = False
    """Whether the browser may log that a question failed, as it does by itself."""
    open_questions: set[Request] = field(default_factory=set)

    def __post_init__(self) -> None:
        def asked(request: Request) -> None:
            self.open_questions.add(request)

        def ended(request: Request) -> None:
            self.open_questions.discard(request)

        self.page.on("request", asked)
        self.page.on("requestfinished", ended)
        self.page.on("requestfailed", ended)

    @property
    def page(self) -> Page:
        return self.chromium.page

    def go_to(self, fragment: str) -> None:
        """Open the page anew, in the state of this fragment."""
        self.page.goto("about:blank")  # From one fragment to another a browser loads nothing.
        self.page.goto(f"{self.served.server.origin}/{fragment}")
        self.page.locator(".clearhead .page, .clearhead [role=alert]").first.wait_for()
        self.settled()

    def follow(self, fragment: str) -> None:
        """Go to a state as a link in the open page does: nothing is loaded anew."""
        self.page.evaluate(self.FOLLOW, fragment)
        self.settled()

    FOLLOW = """(link) => new Promise((done) => {
      const before = location.hash;
      addEventListener("hashchange", () => setTimeout(done), { once: true });
      location.hash = link;
      if (location.hash === before) dispatchEvent(new HashChangeEvent("hashchange", { newURL: location.href }));
    })"""

    def unfold(self) -> None:
        """What changes one number, beside the figure."""
        self.page.locator(".change details").wait_for()
        for closed in self.page.locator(".change details:not([open]) > summary").all():
            closed.click()

    def settled(self) -> None:
        """Until both forward passes are there."""
        self.page.locator("main[aria-busy=false]").wait_for()

    def quiet(self, seconds: float = SECONDS) -> None:
        """Until every question is answered, and what is drawn of the answers has asked no more."""
        for _ in range(2):
            becomes(self.answered, True, seconds)

    def answered(self) -> bool:
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 20)))")
        return not self.open_questions

    # --- reading ---

    @property
    def alert(self) -> str | None:
        """What the page says went wrong."""
        found = self.page.locator(".clearhead [role=alert]").all_inner_texts()
        return found[0] if found else None

    def figures(self, within: str = "main") -> dict[str, Table]:
        """The tables of all figures by their labels, such as "Q" and "Weights"."""
        return Table.all_in(self.page.locator(within))

    def rows(self, table: str, within: str = "main") -> list[list[str]]:
        """The cells of a plain table: the first whose caption or names of columns hold this text."""
        found = self.page.locator(within).evaluate(self.ROWS, table)
        assert found is not None, f"there is no table {table}"
        return found

    ROWS = """(root, name) => {
      const table = [...root.querySelectorAll("table:not([role=grid])")].find((one) =>
        (one.caption?.textContent ?? "").includes(name) || (one.tHead?.textContent ?? "").includes(name));
      const text = (cell) => [...cell.childNodes].map((node) => node.textContent.trim()).filter(Boolean).join(" ");
      return table ? [...table.tBodies[0].rows].map((row) => [...row.cells].map(text)) : null;
    }"""

    def tables(self, figure: str) -> dict[str, list[list[str]]]:
        """The plain tables of the figure with this label, by their captions."""
        return self.page.locator("main").evaluate(self.TABLES, figure)

    TABLES = """(root, label) => Object.fromEntries([...root.querySelectorAll("figure")]
      .filter((figure) => figure.querySelector("figcaption b")?.textContent === label)
      .flatMap((figure) => [...figure.querySelectorAll("table")]).map((table) => [table.caption.textContent.trim(),
        [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent.trim()))]))"""

    def chances(self) -> list[tuple[str, str, str | None]]:
        """What the model says: words with their shares in A, and in B where there is one."""
        rows = self.page.locator(".answer tbody tr")
        return rows.evaluate_all(
            "rows => rows.map(row => [row.querySelector('th').title, row.querySelector('td.a').textContent,"
            " row.querySelector('td.b')?.textContent ?? null])"
        )

    def code(self) -> str:
        """The Python of the Research panel."""
        return self.page.locator(".research pre code").text_content() or ""

    def fragment(self) -> dict[str, Any]:
        """The state in the address."""
        text: str = self.page.evaluate(
            "() => JSON.stringify(Object.fromEntries(new URLSearchParams(location.hash.slice(1))))"
        )
        fields: dict[str, Any] = json.loads(text)
        if coded := fields.pop("e", None):
            fields |= json.loads(base64.urlsafe_b64decode(coded + "=" * (-len(coded) % 4)))
        return fields

    # --- doing ---

    def button(self, name: str, within: str = ".clearhead") -> Locator:
        return self.page.locator(within).get_by_role("button", name=name, exact=True)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def choose(self, stack: str, layer: int, part: str, head: int) -> None:
        """Choose a head beside the figure."""
        if not self.page.locator(".change .heads").count():
            self.step("Softmax")
        config = self.served.model.config
        both = config.encoder is not None and config.decoder is not None
        name = f"{stack.capitalize()}, block {layer}" if both else f"Block {layer}"
        self.page.locator(".change .choose").select_option(label=name)
        if both and stack == "decoder":
            self.button({"cross": "cross-attention", "attn": "self-attention"}[part], ".change").click()
        self.button(f"Head {head}", ".change").click()

    def menu(self, name: str) -> None:
        """Choose what the menu of the page offers."""
        self.button("Menu").click()
        self.button(name, ".menu").click()

    def step(self, name: str) -> None:
        """Click on a place at the left; the overview and a phone have a menu of places instead."""
        if self.page.locator(".picker:visible").count():
            self.page.locator(".picker").select_option(label=name)
            return
        self.button(name, "nav.left").click()

    def switch(self, name: str) -> Locator:
        return self.page.locator(".change").get_by_role("switch", name=name)

    def run(self, text: str, target: str | None = None) -> None:
        """Type a text, and Enter."""
        self.page.get_by_label("Text for the model to read").fill(text)
        if target is not None:
            self.page.get_by_label("Target: what the decoder has written so far").fill(target)
        self.page.get_by_label("Text for the model to read").press("Enter")
        self.settled()

    # --- at the end ---

    def is_clean(self) -> None:
        """No script failed, no policy was broken, nothing was asked of any other server."""
        complaints = [
            one for one in self.chromium.complaints if not (self.may_fail and "Failed to load resource" in one)
        ]
        assert complaints == [], f"{complaints}\n{self.chromium.refused}"
        own = (self.served.server.origin, "about:", "data:", "blob:")
        assert [url for url in self.chromium.requests if not url.startswith(own)] == []

    def picture(self, path: Path) -> None:
        with suppress(Exception):
            self.page.screenshot(path=path, full_page=True)
            print(f"what the page looked like: {path}")


@dataclass(frozen=True)
class Table:
    """A figure's numbers as text, by their row and column."""

    rows: list[str]
    cols: list[str]
    cells: dict[tuple[int, int], str]
    sums: list[str]

    READ = """(root) => {
      const read = (figure) => {
        const table = figure.querySelector(".table table") ?? figure.querySelector("table");
        const label = figure.querySelector("figcaption b");
        return table && label && [label.title || label.textContent, {
          rows: [...table.querySelectorAll("tbody th")].map((th) => th.title),
          cols: [...table.querySelectorAll("thead th:not(.sum)")].map((th) => th.title),
          cells: [...table.querySelectorAll("td[data-row]")].map((td) =>
            [Number(td.dataset.row), Number(td.dataset.col), td.textContent.trim()]),
          sums: [...table.querySelectorAll("tbody td.sum")].map((td) => td.textContent.trim()),
        }];
      };
      return [...root.querySelectorAll("figure")].map(read).filter(Boolean);
    }"""

    @classmethod
    def all_in(cls, root: Locator) -> dict[str, Table]:
        return {
            label: cls(found["rows"], found["cols"], {(r, c): text for r, c, text in found["cells"]}, found["sums"])
            for label, found in root.evaluate(cls.READ)
        }
