"""The folder of a run before its first checkpoint: its recipe is enough to begin the run again."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearhead.errors import UserError, pasted, reason
from clearhead.json_text import JsonObject, parse
from clearhead.recipe import Recipe, merge
from clearhead.storage.disk import replace_file, temporary_file
from clearhead.storage.run_files import LOCK, METRICS, OWNER, RECIPE
from clearhead.training.consumers import TENSORBOARD
from clearhead.training.events import Saved
from clearhead.training.metrics_log import read_metrics

REPORT = "data_report.json"
NOTHING = {LOCK, OWNER, temporary_file(Path(RECIPE)).name}
"""Files that a run may leave if it is killed before it writes its recipe."""
LEFT = {METRICS, REPORT, TENSORBOARD}
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
    """Whether a run may begin in the folder."""
    if not folder.is_dir():
        return not folder.exists()
    return {path.name for path in folder.iterdir()} <= NOTHING


def is_run(folder: Path) -> bool:
    """Whether a run has begun in the folder."""
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
    """Writes the recipe, and removes what a run left that ended before its first checkpoint."""
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
    """Removes the files of a run that could not begin and has no log. With `is_ours`, removes its folder too."""
    if folder.is_dir() and {path.name for path in folder.iterdir()} - NOTHING <= {RECIPE}:
        (folder / RECIPE).unlink(missing_ok=True)
        if is_ours:
            shutil.rmtree(folder, ignore_errors=True)
