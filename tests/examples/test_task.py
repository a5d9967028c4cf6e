"""examples/task, installed and used: a task of another package trains, is measured and answers as ours do."""

import json
import os
import random
import sys
from pathlib import Path

import pytest

from tests import processes
from tests.architecture.source import ROOT

EXAMPLE = ROOT / "examples" / "task"
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
    """A folder with the package, and with words to learn from."""
    folder = tmp_path_factory.mktemp("task")
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    done = processes.run([*install, "--target", folder, EXAMPLE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    draw = random.Random(0)
    words = ["".join(draw.choices("abcd", k=draw.randint(1, 4))) for _ in range(400)]
    (folder / "words.txt").write_text("\n".join(words), encoding="utf-8")
    return folder


def said(folder: Path, *words: str) -> str:
    """What a process prints that has the package on its path."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", ""), str(ROOT)])
    }
    done = processes.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_task_of_another_package_is_trained_measured_and_asked(folder: Path):
    line = ["-m", "clearhead"]
    recipe, steps = str(EXAMPLE / "sorting.toml"), ["--steps", "200", "--training.device", "cpu"]
    figures = json.loads(said(folder, *line, "train", recipe, "--text", "words.txt", "--out", "run", "--json", *steps))
    assert figures["exact_match"] > 0.8
    assert json.loads(said(folder, *line, "evaluate", "run", "--text", "words.txt", "--json"))["exact_match"] > 0.8
    assert said(folder, *line, "predict", "run", "dcba") == "abcd\n"
    assert said(folder, "-c", PYTHON) == "True\n", "in Python and on the server"
