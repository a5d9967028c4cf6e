"""`clearhead lab exercises` and `clearhead lab grade`."""

import csv
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from clearhead.checkpoints.weights.documents import shown
from clearhead.cli.options import tell
from clearhead.errors import UserError

if TYPE_CHECKING:
    from clearhead_lab.exercises.grading import Grade, Graded

HARDEST = 10
"""Exercises that a class's table lists."""


def exercises(*, out: Path = Path("exercises")) -> None:
    """Write the exercises as HTML pages, one for each set. They work without a server and without a network.

    Args:
        out: Folder for the pages.
    """
    from clearhead.explorer.static_files import check_built
    from clearhead_lab.exercises.pages import write_pages

    check_built()
    n = 0
    for path, given in write_pages(out):
        print(path, flush=True)
        n += len(given.exercises)
    tell(f"{n} exercises. Open a page in a browser; it needs no network. `clearhead lab grade FILE` grades its export.")


def grade(*files: Path, table: Path | None = None) -> None:
    """Grade the answers that pages of exercises exported.

    Runs every model with the learner's edits and judges the values, whatever the file says of itself. Of one file it
    prints every exercise, with what was wrong; of several a row each, and the exercises that were most often not right.

    Args:
        files: Files from "Export answers" of a page, or folders of such files.
        table: CSV file to write: a row for each exercise of each file.
    """
    from clearhead_lab.exercises.grading import files_of, graded

    if not files:
        raise UserError("lab grade: expected a file of answers or a folder of them, got none; name one")
    files_graded = [graded(path) for path in files_of(files)]
    if len(files_graded) == 1:
        _print_one(files_graded[0])
    else:
        _print_class(files_graded)
    if table is not None:
        _write_csv(files_graded, table)
    _check(files_graded)


def _print_one(graded: "Graded") -> None:
    for given, several in groupby(graded.grades, key=lambda grade: grade.given):
        print(given.title)
        for grade in several:
            sign = "✓" if grade.is_right else "·" if grade.judgement is None else "✗"
            what = "no answer" if grade.judgement is None else f"{grade.judgement}: {grade.says}".removesuffix(": ")
            print(f"  {sign} {grade.of.title:<36} {what}")
    if graded.grades:
        print(f"\n{sum(grade.is_right for grade in graded.grades)} of {len(graded.grades)} right.")


def _print_class(files: Sequence["Graded"]) -> None:
    from clearhead_lab.exercises.sets import SETS

    given = {grade.given.name for graded in files for grade in graded.grades}
    names = [name for name in SETS if name in given]
    rows = [["file", *names, "right", ""], *(_row(graded, names) for graded in files)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    for row in rows:
        numbers = (cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:], strict=True))
        print("  ".join([row[0].ljust(widths[0]), *numbers, row[-1]]).rstrip())
    missed = Counter(
        (grade.given.name, grade.exercise) for graded in files for grade in graded.grades if _is_wrong(grade)
    )
    if missed:
        print("\nMost often not right:")
    for (of, exercise), n in missed.most_common(HARDEST):
        judgements = Counter(
            grade.judgement
            for graded in files
            for grade in graded.grades
            if grade.exercise == exercise and _is_wrong(grade)
        )
        print(f"  {n} × {of}/{exercise}: " + ", ".join(f"{name} {times}" for name, times in judgements.most_common()))


def _row(graded: "Graded", names: Sequence[str]) -> list[str]:
    """A file's name, right answers of each set, their sum, and a remark."""
    cells: list[str] = []
    for name in names:
        own = [grade for grade in graded.grades if grade.given.name == name]
        cells.append(f"{sum(grade.is_right for grade in own)}/{len(own)}" if own else "–")
    edited = sum(grade.is_told_otherwise for grade in graded.grades)
    remarks = [f"not graded: {len(graded.problems)}"] if graded.problems else []
    remarks += [f"judgements edited: {edited}"] if edited else []
    right = str(sum(grade.is_right for grade in graded.grades)) if graded.grades else "–"
    return [str(graded.path), *cells, right, ", ".join(remarks)]


def _is_wrong(grade: "Grade") -> bool:
    return grade.judgement is not None and not grade.is_right


def _write_csv(files: Sequence["Graded"], path: Path) -> None:
    """A row for each exercise of each file."""
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["file", "set", "exercise", "judgement", "the file says"])
            rows.writerows(
                [graded.path, grade.given.name, grade.exercise, grade.judgement or "", grade.claimed or ""]
                for graded in files
                for grade in graded.grades
            )
    except OSError as error:
        raise UserError(f"{path}: expected to write the table, got {error.strerror}; name another file") from None


def _check(files: Sequence["Graded"]) -> None:
    """Prints all problems but the last, and raises UserError for the last."""
    problems = [problem for graded in files for problem in graded.problems]
    problems += [
        _otherwise(graded.path, grade) for graded in files for grade in graded.grades if grade.is_told_otherwise
    ]
    for problem in problems[:-1]:
        tell(problem)
    if problems:
        raise UserError(problems[-1])


def _otherwise(path: Path, grade: "Grade") -> str:
    return (
        f"{path}:sets.{grade.given.name}.judged.{grade.exercise}: expected {grade.judgement}, which its answer is"
        f" judged, got {shown((grade.claimed or '')[:40])!r}; export the file again from the page"
    )
