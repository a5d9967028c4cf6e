"""Room on the disk for the checkpoints of a run: foretold before it runs out, and made when it has."""

import shutil
from collections.abc import Collection
from pathlib import Path

from clearhead.errors import sizes
from clearhead.storage.checkpoints import best, prune, step_of
from clearhead.storage.disk import has_space
from clearhead.storage.manifest import STEP


def shortage(run_folder: Path, newest: Path, most: int) -> str:
    """A line if the disk has no room for `most` checkpoints of the size of `newest`, those that exist included."""
    size = sum(path.stat().st_size for path in newest.rglob("*") if path.is_file())
    n_more, free = most - len(_steps(run_folder)), shutil.disk_usage(run_folder).free
    if n_more * size <= free:
        return ""
    wanted, left = sizes(n_more * size, free)
    return (
        f"{run_folder}: up to {n_more} more checkpoints need {wanted}, and {left} is free; when no room is left, the"
        " oldest but the best are removed; try a lower --training.keep_spaced, or free some space"
    )


def make_room(run_folder: Path, n_bytes: int, *, keep: Collection[int] = ()) -> list[Path]:
    """Remove checkpoints until there is room for another of `n_bytes`, and return them.

    Removes the oldest first; never the newest one that verifies, the one that `best.json` names or those of the steps
    in `keep`.
    """
    named, removed = best(run_folder), list[Path]()
    spared = {*keep, *([step_of(named)] if named is not None and STEP.fullmatch(named.name) else [])}
    for n in range(len(_steps(run_folder)) - 1, 0, -1):
        if has_space(run_folder, n_bytes):
            break
        removed += prune(run_folder, keep_last=n, keep=spared)
    return removed


def _steps(run_folder: Path) -> list[Path]:
    return [path for path in run_folder.glob("step-*") if STEP.fullmatch(path.name)]
