"""`python -m benchmarks.met [JOB ...]`: how many files and functions of ours a user's job goes through.

Counts each function of the package that Python enters, and the files and packages they stand in. Modules that are
imported but never called do not count.
"""

import csv
import io
import random
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from pydantic import JsonValue

import clearhead
from benchmarks.entry import run_command
from clearhead.cli import main

HOME = str(Path(clearhead.__file__).parent)
JOBS: dict[str, Callable[[Path], Callable[[], object]]] = {}
"""By name, what prepares a job in a folder and gives the job."""


def job(prepare: Callable[[Path], Callable[[], object]]) -> Callable[[Path], Callable[[], object]]:
    JOBS[prepare.__name__] = prepare
    return prepare


@contextmanager
def met() -> Iterator[set[CodeType]]:
    """The code of ours that runs inside, on every thread."""
    codes: set[CodeType] = set()

    def enter(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if (
            event == "call"
            and code.co_flags & CO_OPTIMIZED
            and code.co_name[0] != "<"
            and code.co_filename.startswith(HOME)
        ):
            codes.add(code)

    threading.setprofile(enter)
    sys.setprofile(enter)
    try:
        yield codes
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def run(*words: object) -> None:
    """Runs a command of the command line."""
    main(list(map(str, words)))


def write_table(file: Path) -> Path:
    """A table of 200 short reviews with two labels."""
    draw = random.Random(0)
    words = {"good": "fine great lovely warm clever".split(), "bad": "dull poor cold slow clumsy".split()}
    with file.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["text", "label"])
        for label in ("good", "bad") * 100:
            writer.writerow([f"a {draw.choice(words[label])} and {draw.choice(words[label])} film", label])
    return file


def small_translation(folder: Path) -> Path:
    """A run of two updates that can translate."""
    pairs = {
        "en": "a man sees a dog\na dog sees a man\n",
        "de": "ein mann sieht einen hund\nein hund sieht einen mann\n",
    }
    for name, text in pairs.items():
        (folder / f"train.{name}").write_text(text * 50)
    run("train", "translation", "--source", folder / "train.en", "--target", folder / "train.de",
        "--training.steps", 2, "--out", folder / "run")  # fmt: skip
    return folder / "run"


@job
def table(folder: Path) -> Callable[[], object]:
    """A CSV to six updates."""
    file = write_table(folder / "reviews.csv")
    return lambda: run("train", file, "--out", folder / "run", "--training.steps", 6)


@job
def translate(folder: Path) -> Callable[[], object]:
    """A sentence to its translation."""
    model = small_translation(folder)
    return lambda: run("translate", model, "a man sees a dog")


@job
def load(folder: Path) -> Callable[[], object]:
    """A folder to a model."""
    model = small_translation(folder)
    return lambda: clearhead.load(model)


@job
def edit(folder: Path) -> Callable[[], object]:
    """A head switched off in the explorer, to the answer."""
    from clearhead.explorer.session import Session

    model = clearhead.load(small_translation(folder))
    session = Session(model, name="run", text="a man sees a dog")
    session.answer({"ask": "run", "run": {"text": "a man sees a dog"}})
    edit: JsonValue = {"at": "decoder.blocks.0.cross.weights[h=0]", "do": "zero"}
    return lambda: session.answer({"ask": "run", "run": {"text": "a man sees a dog", "edits": [edit]}})


@job
def forward(folder: Path) -> Callable[[], object]:
    """Token ids to logits."""
    import torch

    model = clearhead.load(small_translation(folder))
    ids = torch.tensor([[4, 5, 6]])
    return lambda: model.network(ids, ids)


def report() -> None:
    print(f"{'job':12} {'files':>6} {'functions':>10} {'packages':>9}")
    for name in sys.argv[1:] or JOBS:
        silence = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(silence), redirect_stderr(silence):
            act = JOBS[name](Path(folder))
            with met() as codes:
                act()
        files = {code.co_filename for code in codes}
        packages = {str(Path(file).parent) for file in files}
        print(f"{name:12} {len(files):6} {len(codes):10} {len(packages):9}")


if __name__ == "__main__":
    run_command(report)
