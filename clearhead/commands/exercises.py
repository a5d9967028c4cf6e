"""`clearhead lab exercises` and `clearhead lab grade`."""

from itertools import groupby
from pathlib import Path

from clearhead.commands import tell
from clearhead.errors import UserError


def exercises_command(folder: Path) -> None:
    """Writes a page for each set of exercises, and prints their paths."""
    from clearhead.explorer.static_files import check_built
    from clearhead.lab.exercises.pages import write_pages

    check_built()
    n = 0
    for path, given in write_pages(folder):
        print(path, flush=True)
        n += len(given.exercises)
    tell(f"{n} exercises. Open a page in a browser; it needs no network. `clearhead lab grade FILE` grades its export.")


def grade_command(file: Path) -> None:
    """Prints the judgement of every exercise of a file. Raises UserError if the file says otherwise."""
    from clearhead.lab.exercises.grading import grades

    found = list(grades(file))
    for given, several in groupby(found, key=lambda grade: grade.given):
        print(given.title)
        for grade in several:
            sign = "✓" if grade.is_right else "·" if grade.judgement is None else "✗"
            print(f"  {sign} {grade.exercise:<26} {grade.judgement or 'no answer'}")
    n = sum(grade.is_right for grade in found)
    print(f"\n{n} of {len(found)} right.")
    told = [grade for grade in found if grade.is_told_otherwise]
    if told:
        first = told[0]
        raise UserError(
            f"{file}:sets.{first.given.name}.judged.{first.exercise}: expected {first.judgement}, which its answer is"
            f" judged, got {first.claimed!r} ({len(told)} of this kind); export the file again from the page"
        )
