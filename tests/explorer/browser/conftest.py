"""The explorer's page behind its real server, on models trained here; a picture of the page where a test fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from clearhead.api import Model, load
from clearhead.explorer import static_files
from clearhead.explorer.serving import serving
from clearhead.explorer.session import Session
from tests.explorer.browser.page import Opened, Served, fragment
from tests.explorer.browser.seeing import IMAGE, INPUTS, Seen
from tests.explorer.conftest import ChromiumPage, _missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Serve = Callable[..., Served]
Open = Callable[..., Opened]
KEPT = pytest.StashKey[list[Opened]]()


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a trained model: trained when first asked for."""
    found: dict[str, Path] = {}

    def of(name: str) -> Path:
        if name not in found:
            from tests.explorer.browser.trained import trained

            found[name] = tmp_path_factory.mktemp("models") / name
            trained(name, found[name])
        return found[name]

    return of


@pytest.fixture(scope="session")
def serve(folder_of: Callable[[str], Path]) -> Iterator[Serve]:
    """Serves a trained model by its name, or any model; until the end of the tests."""
    if not (static_files.STATIC / "explorer.js").is_file():
        _missing("the built page (npm run build, in ui/)")
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


@pytest.fixture
def open_page(chromium: Browser, serve: Serve, request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens the page on a model, with a state of its own in the fragment; nothing may be complained about in it."""
    opened: list[Opened] = []
    request.node.stash[KEPT] = opened
    with ExitStack() as contexts:

        def page_of(served: Served | str, fragment: str = "", *, may_fail: bool = False, **options: Any) -> Opened:
            served = serve(served) if isinstance(served, str) else served
            settings: dict[str, Any] = {
                "viewport": {"width": 1600, "height": 1000},
                "color_scheme": "light",
                "locale": "en-GB",
            }
            context = chromium.new_context(**{**settings, **options})
            contexts.callback(context.close)
            context.set_default_timeout(10_000)
            server = served.server
            context.add_cookies([{"name": f"clearhead-{server.port}", "value": server.token, "url": server.origin}])
            one = Opened(served, ChromiumPage(context.new_page()), may_fail=may_fail)
            opened.append(one)
            one.go_to(fragment)
            return one

        yield page_of
        for one in opened:
            one.is_clean()


@pytest.fixture
def see(open_page: Open, serve: Serve):
    """Opens the page on a model's input, in a state."""

    def seen(name: str, **state: Any) -> Seen:
        served = serve(name)
        text, target = INPUTS[name]
        if name == "seer":
            state["image"] = "example:0"
        opened = open_page(served, fragment(text, target, **state))
        return Seen(opened, served, *served.trace(IMAGE if name == "seer" else text, target))

    return seen


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Function, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A picture of every page of a failed test, in its folder."""
    report: Any = yield
    if call.when == "call" and report.failed:
        for i, one in enumerate(item.stash.get(KEPT, [])):
            one.picture(Path(str(item.funcargs["tmp_path"])) / f"{item.name[:60].replace('/', '-')}-{i}.png")
    return report


@pytest.fixture(autouse=True)
def _folder_for_pictures(tmp_path: Path) -> None:
    """Every test has one."""
