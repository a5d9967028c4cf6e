"""`model.explore` in a real JupyterLab and a real marimo: a cell is run, the page appears in it, an edit works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clearhead.explorer.serving import listen
from clearhead.explorer.static_files import static_file
from tests.conftest import ROOT
from tests.explorer.conftest import ChromiumPage, _missing
from tests.small_models import PAIRS

if TYPE_CHECKING:
    from playwright.sync_api import Page

LINES = (
    "from tests.small_models import model_of",
    'model = model_of("demo")',
    f"model.explore({PAIRS.source[0]!r}, {PAIRS.target[0]!r})",
)
NO_NEWS = {"fetchNews": "false", "checkForUpdates": False}


@contextmanager
def running(command: list[str], url: str, folder: Path, **environment: str) -> Iterator[None]:
    """A server of notebooks, from when it answers until the end of the block."""
    log = folder / "log.txt"
    around = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]), "OMP_NUM_THREADS": "1", "HOME": str(folder), **environment}
    with (
        log.open("w") as said,
        subprocess.Popen(command, cwd=folder, env=around, stdout=said, stderr=subprocess.STDOUT) as process,
    ):
        try:
            deadline = time.monotonic() + 60
            while not answers(url):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
            yield
        except BaseException:
            print(log.read_text())
            raise
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()


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
    """One that nothing listens on, a moment ago."""
    with listen() as socket:
        return socket.getsockname()[1]


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """A file, with the folders it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def switch_a_head_off(page: Page) -> None:
    """The page appears, a head is switched off in it, and the answer moves."""
    explorer = page.locator(".clearhead")
    explorer.locator(".page").wait_for(timeout=60_000)
    words = explorer.locator(".ribbon").inner_text()
    for word in (PAIRS.source[0], PAIRS.target[0]):
        assert all(part in words for part in word.split()), words
    assert explorer.get_by_test_id("moved").count() == 0
    explorer.locator(".change").get_by_role("button", name="off", exact=True).click()
    moved = explorer.get_by_test_id("moved")
    moved.wait_for(timeout=30_000)
    assert "KL" in moved.inner_text()
    assert explorer.get_by_role("alert").count() == 0


def test_jupyterlab(tmp_path: Path, chromium_page: ChromiumPage) -> None:
    pytest.importorskip("jupyterlab") if os.environ.get("CI") != "true" else None
    notebooks = tmp_path / "notebooks"
    cell = {"cell_type": "code", "id": "1", "metadata": {}, "source": "\n".join(LINES), "outputs": [], "execution_count": None}
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    file = notebooks / "explore.ipynb"
    write_json(file, {"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5})
    settings = tmp_path / "settings"
    write_json(settings / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings", NO_NEWS)
    port, token = free_port(), "for-the-test"
    url = f"http://127.0.0.1:{port}/doc/tree/{file.name}?token={token}"
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}"),
        *("--ServerApp.port_retries=0", f"--ServerApp.root_dir={notebooks}", "--LabApp.extension_manager=readonly"),
        f"--LabApp.user_settings_dir={settings}",
    ]
    folders = {
        f"JUPYTER_{name}_DIR": str(tmp_path / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")
    } | {"IPYTHONDIR": str(tmp_path / "ipython"), "JUPYTER_TOKEN": token}
    with running(command, url, tmp_path, **folders):
        page = chromium_page.page
        page.goto(url)
        page.locator('.jp-Notebook-ExecutionIndicator[data-status="idle"]').wait_for(timeout=60_000)
        page.locator(".jp-CodeCell .cm-content").click()
        page.keyboard.press("Shift+Enter")
        switch_a_head_off(page)
        before = file.stat().st_mtime_ns
        page.keyboard.press("Control+s")
        deadline = time.monotonic() + 10
        while file.stat().st_mtime_ns == before:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        page.screenshot(path="/tmp/w/widget/jupyter.png")
    saved = file.read_text()
    print(len(saved), saved)


def test_marimo(tmp_path: Path, chromium_page: ChromiumPage) -> None:
    file = tmp_path / "explore.py"
    body = "\n    ".join(LINES)
    file.write_text(f"import marimo\n\napp = marimo.App()\n\n\n@app.cell\ndef _():\n    {body}\n    return\n")
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    command = [
        *(sys.executable, "-m", "marimo", "run", str(file), "--headless", "--no-token", "--host", "127.0.0.1"),
        *("--port", str(port)),
    ]
    with running(command, url, tmp_path, XDG_CONFIG_HOME=str(tmp_path), XDG_CACHE_HOME=str(tmp_path)):
        chromium_page.page.goto(url)
        switch_a_head_off(chromium_page.page)
        chromium_page.page.screenshot(path="/tmp/w/widget/marimo.png")
    print(chromium_page.complaints)
