"""The packages of examples/, installed as a user installs them."""

import os
import sys
from pathlib import Path

from tests import processes

ROOT = Path(__file__).resolve().parents[2]


def install(name: str, folder: Path) -> Path:
    """Installs examples/NAME into a folder, which is returned."""
    offline = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check")
    pip = (sys.executable, "-m", "pip", "install", *offline, "--target", folder, ROOT / "examples" / name)
    processes.run(pip, check=True)
    return folder


def run(*arguments: str, path: Path | None = None, cwd: Path | None = None) -> tuple[int, str]:
    """Exit code and output of Python with these arguments, which finds packages in `path` too."""
    places = [str(place) for place in (path, ROOT, ROOT / "lab") if place is not None]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    done = processes.run((sys.executable, *arguments), capture_output=True, text=True, env=environment, cwd=cwd)
    return done.returncode, done.stdout + done.stderr
