"""The explorer's page behind its real server, on models trained here; a picture of the page where a test fails."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from filelock import FileLock

from clearhead.api import Model, load
from clearhead.explorer import static_files
from clearhead.explorer.hosting.server import serving
from clearhead.explorer.session import Session
from tests.explorer.browser.files import OpenedFile, written
from tests.explorer.browser.page import Opened, Served, fragment
from tests.explorer.browser.seeing import IMAGE, INPUTS, SPOTS, Seen, Spot
from tests.explorer.browser.trained import trained
from tests.explorer.browser.views import of_run
from tests.explorer.conftest import ChromiumPage, _missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Serve = Callable[..., Served]
Open = Callable[..., Opened]
KEPT = pytest.StashKey[list[Opened]]()
FAILED = pytest.StashKey[bool]()
PLAIN: dict[str, Any] = {"viewport": {"width": 1600, "height": 1000}, "color_scheme": "light", "locale": "en-GB"}


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a trained model: trained when first asked for, by one of the processes that test."""
    own = tmp_path_factory.getbasetemp()
    common = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def of(name: str) -> Path:
        folder = common / name
        with FileLock(common / f"{name}.lock"):
            if not folder.exists():
                trained(name, folder)
        return folder

    return of


@pytest.fixture
def translator(folder_of: Callable[[str], Path]) -> Session:
    text, target = INPUTS["translator"]
    return Session(load(folder_of("translator")), name="translator", text=text, target=target)


@pytest.fixture(scope="session")
def serve(folder_of: Callable[[str], Path]) -> Iterator[Serve]:
    """Serves a trained model by its name, or any model; until the end of the tests."""
    check_built()
    known: dict[str, Served] = {}
    with ExitStack() as servers:

        def served(name: str, model: Model | None = None, folder: Path | None = None, **begins: Any) -> Served:
            if name not in known:
                if name == "seer":
                    begins = {"image": IMAGE, **begins}
                if model is None:
                    folder = folder_of(name)
                    model = load(folder)
                session = Session(model, name=str(folder or name), folder=folder, **begins)
                known[name] = Served(model, session, servers.enter_context(serving(session)))
            return known[name]

        yield served


@pytest.fixture(scope="session")
def run_of_12_steps(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """A training run, opened at its best checkpoint."""
    return of_run(serve, tmp_path_factory.mktemp("run"))


def new_page(chromium: Browser, served: Served, *, may_fail: bool = False, **options: Any) -> Opened:
    """A page in a profile of its own, on nothing yet."""
    context = chromium.new_context(**{**PLAIN, **options})
    context.set_default_timeout(20_000)
    server = served.server
    context.add_cookies([{"name": f"clearhead-{server.port}", "value": server.token, "url": server.origin}])
    return Opened(served, ChromiumPage(context.new_page()), may_fail=may_fail)


@pytest.fixture
def open_page(chromium: Browser, serve: Serve, request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens the page on a model, with a state of its own in the fragment; nothing may be complained about in it."""
    opened = kept_of(request)

    def page_of(served: Served | str, fragment: str = "", **options: Any) -> Opened:
        opened.append(new_page(chromium, serve(served) if isinstance(served, str) else served, **options))
        opened[-1].go_to(fragment)
        return opened[-1]

    yield page_of
    for one in opened:
        one.page.context.close()
    for one in opened:
        one.is_clean()


@pytest.fixture(scope="session")
def _pages() -> Iterator[dict[str, Opened]]:
    """By model, a page that tests share one after the other."""
    pages: dict[str, Opened] = {}
    yield pages
    for one in pages.values():
        one.page.context.close()


@pytest.fixture
def shared_page(
    chromium: Browser, serve: Serve, _pages: dict[str, Opened], request: pytest.FixtureRequest
) -> Iterator[Open]:
    """Follows a link in a page that is open already: for tests that leave nothing behind but what a link replaces."""
    opened = kept_of(request)

    def page_of(name: str, fragment: str) -> Opened:
        if name not in _pages:
            _pages[name] = new_page(chromium, serve(name))
            _pages[name].go_to(fragment)
        one = _pages[name]
        opened.append(one)
        one.page.set_viewport_size(PLAIN["viewport"])
        one.page.emulate_media(color_scheme=PLAIN["color_scheme"])
        one.follow(fragment)
        return one

    yield page_of
    if FAILED in request.node.stash:  # Who knows what it left.
        while _pages:
            _pages.popitem()[1].page.context.close()
    for one in opened:
        one.is_clean()


def kept_of(request: pytest.FixtureRequest) -> list[Opened]:
    return request.node.stash.setdefault(KEPT, [])


@pytest.fixture
def see(shared_page: Open, serve: Serve):
    """The page on a model's input, in a state."""

    def seen(name: str, **state: Any) -> Seen:
        served = serve(name)
        text, target = INPUTS[name]
        if name == "seer":
            state["image"] = "example:0"
        opened = shared_page(name, fragment(text, target, **state))
        given = (IMAGE if name == "seer" else text, target)
        return Seen(opened, served, *served.trace(*given), given)

    return seen


@pytest.fixture(params=SPOTS)
def spot(see, request: pytest.FixtureRequest) -> Spot:
    """Every model, each at its own spot."""
    return spot_of(see, request.param)


def spot_of(see, name: str, **state: Any) -> Spot:
    """A model at its spot, in a state."""
    place: dict[str, Any] = {"layer": 0, "part": "attn", **SPOTS[name]}
    return Spot(see(name, **place, **state), name, *(place[x] for x in ("stack", "layer", "part", "query")))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Function, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A picture of every page of a failed test, in its folder."""
    report: Any = yield
    if call.when == "call" and report.failed:
        item.stash[FAILED] = True
        for i, one in enumerate(item.stash.get(KEPT, [])):
            one.picture(Path(str(item.funcargs["tmp_path"])) / f"{item.name[:60].replace('/', '-')}-{i}.png")
    return report


@pytest.fixture(autouse=True)
def _folder_for_pictures(tmp_path: Path) -> None:
    """Every test has one."""


def check_built() -> None:
    if not (static_files.STATIC / "explorer.js").is_file():
        _missing("the built page (npm run build, in ui/)")


@pytest.fixture
def open_file(chromium: Browser) -> Iterator[Open]:
    """Opens a file of a session with the network off; nothing may be complained about, or asked for."""
    check_built()
    opened: list[OpenedFile] = []
    with ExitStack() as contexts:

        def file_of(session: Session, path: Path, fragment: str = "") -> OpenedFile:
            context = chromium.new_context(viewport={"width": 1600, "height": 1000}, offline=True, locale="en-GB")
            contexts.callback(context.close)
            context.set_default_timeout(20_000)
            nobody: Any = None
            served = Served(session.model, session, nobody)
            opened.append(OpenedFile(served, ChromiumPage(context.new_page()), path=path))
            opened[-1].go_to(fragment)
            return opened[-1]

        yield file_of
        for one in opened:
            one.is_clean()


@pytest.fixture
def open_place(open_page: Open, open_file: Open, tmp_path: Path) -> Open:
    """Opens a served model in a state: in the page, or in the file of a small or a large model, which holds more."""

    def place_of(where: str, served: Served, state: str, **held: Any) -> Opened:
        if where == "page":
            return open_page(served, state)
        large = where == "large file"
        return open_file(served.session, written(served.session, tmp_path / "a.html", large=large, state=state, **held))

    return place_of


@pytest.fixture(scope="session")
def serve_input(serve: Serve, folder_of: Callable[[str], Path]) -> Callable[[str], Served]:
    """Serves a trained model that begins with its input."""

    def served(name: str) -> Served:
        begins = {"image": IMAGE} if name == "seer" else dict(zip(("text", "target"), INPUTS[name], strict=True))
        return serve(f"{name} and its input", load(folder_of(name)), **begins)

    return served
