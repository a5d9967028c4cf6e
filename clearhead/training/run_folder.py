"""The folder of a run: the lock that allows only one writer, and the recipe from which the run can begin again.

The operating system frees the lock when its owner dies, so no stale lock has to be removed. Readers need no lock,
because files appear whole or not at all.
"""

import logging
import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from clearhead.data.corpus import NO_LOCKS
from clearhead.errors import UserError, pasted, reason
from clearhead.json_text import JsonObject, parse
from clearhead.recipe import Recipe, merge
from clearhead.recipe.places import FLOOR, LOCK, METRICS, OWNER, RECIPE
from clearhead.storage.disk import make_folder, replace_file, temporary_file, written
from clearhead.training.consumers import TENSORBOARD
from clearhead.training.events import Saved
from clearhead.training.metrics_log import read_metrics
from clearhead.training.ranks import ALONE, Ranks

REPORT = "data_report.json"
DATA = "data"
"""The folder of the rows that a program gave."""
NOTHING = {LOCK, OWNER, DATA, temporary_file(Path(RECIPE)).name}
"""Files that may be there before a run writes its recipe."""
LEFT = {METRICS, REPORT, FLOOR, TENSORBOARD}
"""Files that a run may write before its first checkpoint, besides its recipe."""


def require_new(folder: Path) -> None:
    """Raises UserError unless the folder is missing or empty, or a run ended there before it wrote anything."""
    if is_free(folder):
        return
    got, remedy = "one with files" if folder.is_dir() else "a file", "try another --out"
    if is_run(folder):
        remedy = f"go on with clearhead resume {pasted(folder)}, or {remedy}"
    raise UserError(f"{folder}: expected a new folder for the run, got {got}; {remedy}")


def is_free(folder: Path) -> bool:
    """Returns True if a run may begin in the folder."""
    if not folder.is_dir():
        return not folder.exists()
    return {path.name for path in folder.iterdir()} <= NOTHING


def is_run(folder: Path) -> bool:
    """Returns True if a run has begun in the folder."""
    return (folder / RECIPE).is_file() or any(folder.glob("step-*"))


def require_run(folder: Path) -> None:
    """Raises UserError unless a run has begun in the folder."""
    if not is_run(folder):
        raise UserError(
            f"{folder}: expected a run with a checkpoint, found none and no {RECIPE};"
            " start one in a new folder with clearhead train"
        )


def with_absolute_paths(recipe: Recipe) -> Recipe:
    """The recipe with absolute paths, so that the run finds its files from any working directory."""
    data = recipe.data.model_copy(update={"folder": recipe.data.folder.absolute()})
    changes: dict[str, Any] = {"data": data}
    if recipe.model.start is not None:
        changes["model"] = recipe.model.model_copy(update={"start": _absolute(recipe.model.start)})
    if (teacher := recipe.training.teacher) is not None:
        there = teacher.model_copy(update={"start": _absolute(teacher.start)})
        changes["training"] = recipe.training.model_copy(update={"teacher": there})
    return recipe.model_copy(update=changes)


def _absolute(name: str) -> str:
    """The absolute path of a folder; a name of the hub as it is."""
    here = Path(os.path.expanduser(name))  # noqa: PTH111 - a Path of "./~" is "~"
    return str(here.absolute()) if here.is_dir() else name


def recipe_begun(folder: Path) -> JsonObject:
    """The recipe of a run that ended before its first checkpoint. Raises UserError if the folder holds no such run."""
    require_run(folder)
    if (folder / METRICS).exists():
        saved = [event["step"] for event in read_metrics(folder) if event.get("kind") == Saved.__name__.lower()]
        if saved:
            raise UserError(
                f"{folder}: expected the checkpoint of step {saved[-1]}, of which {METRICS} tells, found none that is"
                " whole; put it back, or start a new run with clearhead train and another --out"
            )
    return recipe_in(folder / RECIPE)


def recipe_in(path: Path) -> JsonObject:
    """The recipe that a run wrote. Raises UserError if it is missing or damaged."""
    remedy = "start a new run with clearhead train"
    try:
        document = parse(path.read_bytes(), str(path), remedy=remedy)
    except OSError as error:
        raise UserError(f"{path}: expected the recipe of a run, got {reason(error)}; {remedy}") from None
    if not isinstance(document, dict):
        raise UserError(f"{path}: expected the recipe of a run, got another text; {remedy}")
    return document


def begin_folder(folder: Path, recipe: Recipe) -> None:
    """Writes the recipe, and removes the files of a run that ended before its first checkpoint."""
    for name in LEFT:
        path = folder / name
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    write_recipe(folder, recipe)


def write_recipe(folder: Path, recipe: Recipe) -> None:
    """Writes the recipe of the run in this folder."""
    replace_file(folder / RECIPE, recipe.model_dump_json(indent=2).encode())


def recorded(folder: Path, saved: JsonObject, changes: Mapping[str, object]) -> dict[str, Any]:
    """A checkpoint's recipe with the training that the run's folder records since, and with changes to that."""
    path = folder / RECIPE
    since = recipe_in(path).get("training") if path.is_file() else None
    return merge(saved if since is None else {**saved, "training": since}, {"training": changes})


def undo(folder: Path, *, is_ours: bool) -> None:
    """Removes the files of a run that could not begin and has no log. With `is_ours`, removes its folder too.

    So goes the usual folder of runs, `runs`, if it is empty then.
    """
    if folder.is_dir() and {path.name for path in folder.iterdir()} - NOTHING <= {RECIPE}:
        (folder / RECIPE).unlink(missing_ok=True)
        shutil.rmtree(folder / DATA, ignore_errors=True)
        if is_ours:
            shutil.rmtree(folder, ignore_errors=True)
            if folder.parent == Path("runs"):
                with suppress(OSError):  # Another run is in it.
                    folder.parent.rmdir()


_log = logging.getLogger("clearhead")


@contextmanager
def lock_folder(folder: Path, ranks: Ranks = ALONE) -> Iterator[bool]:
    """Makes the folder if needed, and locks it against writes by other processes.

    The first process of a run holds the lock for all its processes, and a thread that holds it may take it again.
    Yields False, after a warning, if the file system has no locks. Raises UserError in all processes if another process
    or thread holds the lock, or if the folder cannot be written.
    """
    with ExitStack() as stack:
        yield ranks.first(
            ranks.together(lambda: stack.enter_context(_locked(folder)) if ranks.is_first else False),
        )


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: expected a folder for the run, got a file; try another folder")
    lock, is_locked = FileLock(folder.resolve() / LOCK, timeout=0, is_singleton=True), False
    try:
        with written(folder):
            make_folder(folder)
            is_locked = _acquire(lock, folder)
            if is_locked and lock.lock_counter == 1:
                (folder / OWNER).write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
        yield is_locked
    finally:
        if is_locked:
            for name in (OWNER, LOCK) if lock.lock_counter == 1 else ():  # One that has opened it does not take it.
                with suppress(OSError):
                    (folder / name).unlink()
            lock.release()


def _acquire(lock: FileLock, folder: Path) -> bool:
    """Takes the lock. Returns False if the file system has no locks. Raises UserError if another process holds it."""
    try:
        lock.acquire()
    except Timeout:
        raise UserError(
            f"{folder}: expected a run that nobody writes to, got one in use by {owner(folder)};"
            " wait until it ends, or stop it first"
        ) from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        _log.warning(
            "%s: this file system has no locks (%s); make sure that no other process writes there",
            folder,
            reason(error),
        )
        return False
    return True


def owner(folder: Path) -> str:
    """The holder of the lock, as far as it is known."""
    try:
        return (folder / OWNER).read_text(encoding="utf-8").strip() or "another process"
    except (OSError, UnicodeDecodeError):
        return "another process"
