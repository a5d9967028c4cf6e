"""The packages of the guides, written from their pages and installed as a reader installs them."""

import os
import re
import shlex
import sys
from pathlib import Path

from tests import processes
from tests.docs.blocks import blocks

ROOT = Path(__file__).resolve().parents[2]
GUIDES = sorted(path.name for path in (ROOT / "examples").iterdir() if path.is_dir())
HEAD = re.compile(r"(?:#|//) (\S+\.\w+)\n")
"""The first line of a block that is a file: its name."""


def page(guide: str) -> list[str]:
    """The blocks of the guide to this part."""
    text = (ROOT / "docs" / "extending" / f"your-own-{guide}.md").read_text(encoding="utf-8")
    return [block.text for block in blocks(text)]


def files(guide: str) -> dict[str, str]:
    return {head[1]: text[head.end() :] for text in page(guide) if (head := HEAD.match(text))}


def install(guide: str, folder: Path) -> Path:
    """Writes the files of a guide into a folder and installs their package into `site` there, which is returned."""
    for name, text in files(guide).items():
        (folder / name).write_text(text, encoding="utf-8")
    return install_from(folder, folder / "site")


def install_from(source: Path, folder: Path) -> Path:
    """Installs the package of a folder into another one, which is returned."""
    offline = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check")
    pip = (sys.executable, "-m", "pip", "install", *offline, "--target", folder, source)
    processes.run(pip, check=True)
    return folder


def run(*arguments: str, path: Path | None = None, cwd: Path | None = None) -> tuple[int, str]:
    """Exit code and output of Python with these arguments, which finds packages in `path` too."""
    places = [str(place) for place in (path, ROOT, ROOT / "lab") if place is not None]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    done = processes.run((sys.executable, *arguments), capture_output=True, text=True, env=environment, cwd=cwd)
    return done.returncode, done.stdout + done.stderr


def follow(guide: str, folder: Path) -> list[str]:
    """Installs what a guide shows, runs its command lines, and returns the lines that the last of them prints."""
    site = install(guide, folder)
    first, *lines = next(text for text in page(guide) if text.startswith("pip install .")).splitlines()
    assert first.startswith("pip install ."), first
    said = ""
    for line in lines:
        words = shlex.split(line)
        code, said = run(*(["-m", *words] if words[0] == "clearhead" else words[1:]), path=site, cwd=folder)
        assert code == 0, f"{line}\n{said}"
    return said.splitlines()
