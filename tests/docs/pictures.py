"""Draws the pictures of the tutorials: `python -m tests.docs.pictures [NAME ...]` runs each page first."""

import os
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import sync_playwright

from tests.conftest import ROOT, SHARED_DATA
from tests.docs.blocks import TUTORIALS
from tests.docs.test_tutorials import HUB, Reader, cells, link

CURVES = {
    "your-csv": ["debts-1"],
    "lora-and-serve": ["things-1"],
    "many-processes": ["one", "two"],
    "your-mechanism": ["letters"],
}
PAGES = {
    "first-translator": "mouse.html", "inside-your-bert": "bert.html", "find-the-head": "ioi.html",
    "one-offline-file": "story.html",
}  # fmt: skip
SIZE, COLOURS, MILLISECONDS = {"width": 1280, "height": 800}, 48, 20_000


def draw(path: Path, reader: Reader) -> None:
    for source, _ in cells(path):
        reader.cell(source)
    if runs := CURVES.get(path.stem):
        reader.line(f"!clearhead curve {' '.join(f'runs/{run}' for run in runs)} --out {path.with_suffix('.svg')}")
        return
    with sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=shutil.which("chromium-headless-shell"))
        page = browser.new_page(viewport=SIZE)
        page.goto((reader.folder / PAGES[path.stem]).as_uri())
        page.wait_for_timeout(MILLISECONDS)
        page.screenshot(path=reader.folder / "shot.png")
        browser.close()
    shot = Image.open(reader.folder / "shot.png").convert("RGB").resize((960, 600), Image.Resampling.LANCZOS)
    shot.quantize(COLOURS).save(path.with_suffix(".png"), optimize=True)


def main(names: list[str]) -> None:
    shared = Path(os.environ.get(SHARED_DATA) or ROOT.parent / "shared" / "data")
    for path in TUTORIALS:
        if names and path.stem not in names:
            continue
        with TemporaryDirectory() as folder, ExitStack() as stack:
            os.chdir(folder)
            for model in HUB:
                link(model, shared, Path(folder))
            draw(path, Reader(Path(folder), Path(folder) / "site", stack))


if __name__ == "__main__":
    main(sys.argv[1:])
