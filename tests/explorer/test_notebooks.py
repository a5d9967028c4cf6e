"""`model.explore` in a real JupyterLab and a real marimo: a cell is run, the page appears in it, an edit works."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clearhead.web import listen
from tests import processes
from tests.conftest import ROOT
from tests.explorer.conftest import ChromiumPage
from tests.small_models import PAIRS

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow
SOURCE, TARGET = PAIRS.source[0], PAIRS.target[0]
LINES = (
    "from tests.small_models import model_of",
    'model = model_of("demo")',
    f"model.explore({SOURCE!r}, {TARGET!r})",
)
SECONDS = 60
"""For a server to start, and for a kernel to import torch; a machine may be busy."""


def need(package: str) -> None:
    """Skip by name if it is not installed: `.[test-notebook]` installs it."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"tests in notebooks need {package} (pip install {package})")


@contextmanager
def running(command: list[str], url: str, folder: Path, **environment: str) -> Iterator[None]:
    """A server of notebooks, from when it answers until the end of the block; its kernels import from this checkout."""
    log = folder / "log.txt"
    around = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HOME": str(folder), **environment}
    with (
        log.open("w") as said,
        processes.started(command, cwd=folder, env=around, stdout=said, stderr=subprocess.STDOUT) as process,
    ):
        try:
            wait_until(lambda: answers(url) or process.poll() is not None)
            assert process.poll() is None
            yield
        except BaseException:
            print(log.read_text())  # Seen where the test fails.
            raise
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()


def wait_until(is_so: Callable[[], bool]) -> None:
    """Until it is so; fails where it does not come to that."""
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def answers(url: str) -> bool:
    """Whether something serves this address."""
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def free_port() -> int:
    """One that nothing listened on a moment ago."""
    with listen() as socket:
        return socket.getsockname()[1]


def write_json(path: Path, value: object) -> Path:
    """A file, with the folders it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def switch_a_head_off(page: Page) -> None:
    """The page appears with the sentence and its translation, a head is switched off in it, and the answer moves."""
    explorer = page.locator(".clearhead")
    switch = explorer.locator(".overview .stage").get_by_role("switch")
    switch.wait_for(timeout=SECONDS * 1000)
    words = explorer.locator(".overview .token").all_inner_texts()
    assert {*SOURCE.split()} <= {*words}, words
    assert "before" not in explorer.locator(".answers").inner_text()
    switch.click()
    explorer.locator(".answers").get_by_text("before").first.wait_for()
    assert explorer.locator(".tale").inner_text().startswith("Now ")
    assert explorer.get_by_role("alert").count() == 0


def has_run_first_cell(page: Page) -> bool:
    """Whether JupyterLab has run it; run where it is not, for what is run before the kernel is ready may be lost."""
    prompt = page.locator(".jp-CodeCell .jp-InputPrompt").first  # [ ]: then [*]: and, when it has run, [1]:
    if not prompt.inner_text().strip("[]:\xa0 \n"):
        page.locator(".jp-CodeCell .cm-content").first.click()
        page.keyboard.press("Shift+Enter")
        page.wait_for_timeout(500)
    return prompt.inner_text().strip("[]:\xa0 \n").isdecimal()


def test_jupyterlab(tmp_path: Path, chromium_page: ChromiumPage) -> None:
    need("jupyterlab")
    source = {"source": "\n".join(LINES), "outputs": [], "execution_count": None, "metadata": {}}
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = {"cells": [{"cell_type": "code", "id": "1", **source}], "metadata": kernel}
    file = write_json(tmp_path / "notebooks" / "explore.ipynb", {**notebook, "nbformat": 4, "nbformat_minor": 5})
    settings = tmp_path / "settings"  # It asks nobody for news, and no reader whether it may.
    quiet = settings / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    write_json(quiet, {"fetchNews": "false", "checkForUpdates": False})
    port = free_port()
    url = f"http://127.0.0.1:{port}/doc/tree/{file.name}?token=for-the-test"
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}"),
        *("--ServerApp.port_retries=0", f"--ServerApp.root_dir={file.parent}"),
        *("--LabApp.extension_manager=readonly", f"--LabApp.user_settings_dir={settings}"),
    ]
    folders = {f"JUPYTER_{name}_DIR": str(tmp_path / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    with running(command, url, tmp_path, IPYTHONDIR=str(tmp_path), JUPYTER_TOKEN="for-the-test", **folders):
        page = chromium_page.page
        # A busy machine makes it ask about its kernel or its connection.
        page.add_locator_handler(page.locator(".jp-Dialog"), lambda asked: asked.locator(".jp-mod-accept").click())
        page.goto(url)
        page.locator(".jp-CodeCell").wait_for(timeout=SECONDS * 1000)
        wait_until(lambda: has_run_first_cell(page))
        switch_a_head_off(page)
        cells = page.locator(".jp-Cell")
        n_cells = cells.count()
        page.keyboard.press("b")  # The page's own key. To JupyterLab it would mean a new cell.
        page.keyboard.press("Control+s")
        wait_until(lambda: "widget-view" in file.read_text())
        assert cells.count() == n_cells
    assert file.stat().st_size < 5_000, "answers and the page itself are not kept in a notebook"


def test_marimo(tmp_path: Path, chromium_page: ChromiumPage) -> None:
    need("marimo")
    file = tmp_path / "explore.py"
    file.write_text("\n    ".join(("import marimo\n\napp = marimo.App()\n\n\n@app.cell\ndef _():", *LINES)) + "\n")
    port = free_port()
    command = [
        *(sys.executable, "-m", "marimo", "run", str(file), "--headless", "--no-token"),
        *("--host", "127.0.0.1", "--port", str(port)),
    ]
    folders = {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("CONFIG", "CACHE", "STATE", "DATA")}
    with running(command, f"http://127.0.0.1:{port}/", tmp_path, **folders):
        chromium_page.page.goto(f"http://127.0.0.1:{port}/")
        switch_a_head_off(chromium_page.page)
