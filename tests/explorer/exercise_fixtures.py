"""Pages of exercises as their parts, and simulated learners, for the judge in the page: exercises.json in a folder.

`python -m tests.explorer.exercise_fixtures FOLDER 200` writes 200 learners for each way.
"""

import json
import sys
from itertools import count
from pathlib import Path
from typing import Any

from clearhead_lab.exercises.pages import parts_by_name
from clearhead_lab.exercises.sets import SETS
from lab.tests.exercises.learners import learners, slipped, undecided
from lab.tests.exercises.spellings import answers

UNDECIDED = 20
"""One of so many learners makes the edits of two ways: the page must judge it as Python does."""


def write(folder: Path, n: int = 1) -> None:
    """Every set: its parts by name, n learners for each way, and its part of 400 answers in all spellings."""
    spelled = count()
    found: list[dict[str, Any]] = []
    for build in SETS.values():
        given = build()
        said = [vars(one) for one in learners(given, n, seed=2)]
        said += [vars(one) for _, _, one in undecided(given, n // UNDECIDED, seed=2)]
        said += [vars(one) for _, one in slipped(given, seed=2)]
        texts = [{**vars(one), "expected": by, "text": text} for one, text, by in answers(given, spelled)]
        found.append({"parts": parts_by_name(given), "learners": said, "spelled": texts})
    (folder / "exercises.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    write(Path(sys.argv[1]), int(sys.argv[2]))
