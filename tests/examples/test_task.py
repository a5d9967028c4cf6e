"""The guide's task, written from the page, installed and used: it trains, is measured and answers as ours do."""

import json
import os
import shlex
import sys
from pathlib import Path

import pytest

from tests import processes
from tests.architecture.source import ROOT
from tests.docs.blocks import blocks

EXAMPLE = ROOT / "examples" / "task"
PAGE = [*blocks((ROOT / "docs" / "extending" / "your-own-task.md").read_text(encoding="utf-8"))]
FILES = {
    head.removeprefix("# "): rest
    for head, _, rest in (one.text.partition("\n") for one in PAGE if one.language in ("python", "ini"))
}
LINES = next(one.text for one in PAGE if one.text.startswith("pip install")).splitlines()
PYTHON = """
import clearhead
from tests.serve.tiny import client_of

model = clearhead.load("run")
with client_of(model) as client:
    served = client.post("/v1/predict", json={"inputs": ["dcba"]}).json()["predictions"]
print(model.predict(["dcba"]) == served == [{"sorted": "abcd"}])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A reader's folder with the files of the page, and its package installed."""
    folder = tmp_path_factory.mktemp("task")
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    done = processes.run([*install, "--target", folder / "site", folder], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder


def said(folder: Path, *words: str) -> str:
    """What a process prints that has the package on its path."""
    path = [str(folder / "site"), os.environ.get("PYTHONPATH", ""), str(ROOT)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    done = processes.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_has_the_files_of_the_example():
    assert {name: FILES[name].strip() for name in FILES if name != "words.py"} == {
        file.name: file.read_text(encoding="utf-8").strip() for file in EXAMPLE.iterdir() if file.is_file()
    }


def test_a_task_of_another_package_is_trained_measured_and_asked(folder: Path):
    assert LINES[0] == "pip install ."
    last = ""
    for line in LINES[1:]:
        words = shlex.split(line)
        last = said(folder, *(["-m", *words] if words[0] == "clearhead" else words[1:]))
    assert last == "abcd\n"
    figures = json.loads(said(folder, "-m", "clearhead", "evaluate", "run", "--text", "more.txt", "--json"))
    assert figures["exact_match"] > 0.8
    assert said(folder, "-c", PYTHON) == "True\n", "in Python and on the server"
