"""The sample place: installed into a folder of its own, it is a place of the page and of exported files."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clearhead.explorer import static_files
from tests import processes
from tests.conftest import ROOT
from tests.examples.packages import install
from tests.explorer.conftest import ChromiumPage, _missing
from tests.explorer.traced import CONFIGS, model_of

if TYPE_CHECKING:
    from playwright.sync_api import Page

SERVES = """
import sys
from clearhead.api import load
from clearhead.explorer.export import export_page
from clearhead.explorer.hosting.server import serving
from clearhead.explorer.session import Session

model = load(sys.argv[1])
export_page(model, "one two three", path=sys.argv[2])
with serving(Session(model, name="sample", text="one two three")) as server:
    print(server.url, flush=True)
    sys.stdin.read()
"""
CELLS = 2 * 3
"""Blocks by tokens."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a page, and an exported file, of a process that has the sample."""
    folder = tmp_path_factory.mktemp("place")
    site = install("place", folder)
    model_of(CONFIGS["decoder_pre_learned"]).save(folder / "model")
    file = folder / "file.html"
    command = [sys.executable, "-c", SERVES, str(folder / "model"), str(file)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with processes.started(command, env=environment, **pipes) as process:
        yield process.stdout.readline().strip(), file


def cells(page: "Page") -> list[str]:
    opening, listed = page.locator(".picker:visible"), page.get_by_role("button", name="Lengths of states")
    opening.or_(listed).first.wait_for()
    if opening.count():  # The overview has a list of places.
        opening.select_option(label="Lengths of states")
    else:
        listed.click()
    page.wait_for_selector("main svg rect")
    return page.locator("main svg rect title").all_text_contents()


@pytest.mark.parametrize("where", ["page", "file"])
def test_it_draws_its_picture(served: tuple[str, Path], chromium_page: ChromiumPage, where: str) -> None:
    if not (static_files.STATIC / "explorer.js").is_file():
        _missing("the built page (npm run build, in ui/)")
    url, file = served
    chromium_page.page.goto(url if where == "page" else file.as_uri())
    found = cells(chromium_page.page)
    assert len(found) == CELLS
    assert found[0].startswith("decoder.blocks.0.resid_post[t=0]: ")
    assert not chromium_page.complaints
