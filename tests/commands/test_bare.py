"""A bare install: what needs the packages of an extra asks for it in one line, and the rest works without them."""

import sys
from pathlib import Path
from typing import Any

import pytest

from clearhead.data.sounds import read_wave
from clearhead.errors import UserError
from tests import processes
from tests.files import put

MISSING = "cleanlab matplotlib PIL rouge_score sacrebleu sacremoses scipy sklearn".split()
"""Packages that only extras install."""
BLOCK = f"import sys; sys.modules.update(dict.fromkeys({MISSING!r})); "
COMMAND = BLOCK + "from clearhead.cli import main; sys.exit(main())"
IMPORT = BLOCK + (
    "import pkgutil, importlib, clearhead\n"
    "for one in pkgutil.walk_packages(clearhead.__path__, 'clearhead.'):\n"
    "    if one.name != 'clearhead.sklearn' and not one.name.endswith('__main__'):\n"
    "        importlib.import_module(one.name)"
)
SMALL = "--training.steps 2 --training.save_every 2 --model.preset classifier"
SCIKIT_LEARN = "expected the package scikit-learn, got none; try pip install 'clearhead[score]'"


def bare(code: str, *arguments: str) -> Any:
    return processes.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)


def reviews(folder: Path) -> None:
    """A table of 80 texts with two labels."""
    rows = [f"dish {i} is {word},{label}" for i in range(40) for word, label in (("good", "yes"), ("bad", "no"))]
    put(folder / "reviews.csv", ["text,label", *rows])


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reviews(tmp_path)
    put("a.en", [f"number {i}" for i in range(40)])
    put("a.fr", [f"nombre {i}" for i in range(40)])


def test_every_module_but_the_estimators_is_imported_without_them():
    done = bare(IMPORT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("train reviews.csv", f"error: begin=words: {SCIKIT_LEARN}"),
        (
            "train translation --data.train.kind parallel --data.train.source a.en --data.train.target a.fr",
            "error: bleu: expected the package sacrebleu, got none; try pip install 'clearhead[score]'",
        ),
    ],
)
def test_a_command_asks_for_its_extra(line: str, says: str):
    done = bare(COMMAND, *line.split())
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, says)


def test_a_run_says_which_comparison_is_missing():
    done = bare(COMMAND, *f"train reviews.csv --begin random {SMALL} --out run".split())
    assert done.returncode == 0, done.stderr
    (floor,) = [line for line in done.stdout.splitlines() + done.stderr.splitlines() if "floor of accuracy" in line]
    assert "majority 0.5000" in floor
    assert "[TF-IDF needs pip install 'clearhead[score]']" in floor


def test_the_estimators_and_sounds_ask_for_their_extra(monkeypatch: pytest.MonkeyPatch):
    done = bare(BLOCK + "import clearhead.sklearn")
    assert done.stderr.splitlines()[-1] == f"clearhead.errors.UserError: clearhead.sklearn: {SCIKIT_LEARN}"
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(UserError, match=r"^sounds: .* scipy, got none; try pip install 'clearhead\[data\]'$"):
        read_wave(Path("a.wav"))
