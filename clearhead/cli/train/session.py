"""`clearhead train` and `resume`."""

import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from signal import SIGINT
from typing import Any

from pydantic import JsonValue

from clearhead import recipe as recipes
from clearhead.api import architecture
from clearhead.cli.options import tell
from clearhead.cli.train.recipes import tables_given, training_of
from clearhead.cli.train.picture_folder import folder_recipe, is_picture_folder
from clearhead.cli.train.sweep import sweep
from clearhead.cli.train.table import source_given, table_recipe
from clearhead.cli.train.trained import end, figures_at
from clearhead.cli.train.watch import live_page
from clearhead.data.conll import is_conll
from clearhead.data.guessing import is_table
from clearhead.errors import Interrupted, UserError, pasted
from clearhead.progress import watching
from clearhead.recipe import Recipe
from clearhead.recipe.places import absolute
from clearhead.runs import (
    Keeper,
    Prepared,
    note_data_report,
    resume,
    start,
    with_absolute_paths,
)
from clearhead.storage import checkpoints
from clearhead.tasks.registry import find, validate
from clearhead.tasks.task import Files, Given
from clearhead.training.beginning import RECIPE, is_free, is_run, recipe_begun, require_new, require_run, undo
from clearhead.training.consumers import EvaluationBar, ProgressBar, TensorBoardLog
from clearhead.training.events import Ended, Event, Started
from clearhead.training.lock import held
from clearhead.training.metrics_log import MetricsLog
from clearhead.training.ranks import Ranks, joined
from clearhead.training.run import Run
from clearhead.training.saving import newest_checkpoint
from clearhead.training.train import train

OPTIONS = ("source", "target", "text", "data", "text_pair", "label", "valid_source", "valid_target", "valid_text")
OPTIONS += ("valid_data", "test_data", "out", "page", "live", "tensorboard", "json")


def train_command(
    recipe: str,
    changes: Sequence[str],
    *,
    short: Mapping[str, object],
    files: Given,
    valid: Given | None = None,
    test: Given | None = None,
    columns: Mapping[str, str | None] | None = None,
    out: Path | None,
    explain: bool = False,
    page: Path | None = None,
    live: bool = False,
    tensorboard: bool,
    as_json: bool,
) -> None:
    """Train from a recipe with changes, or from a table, into a new folder; under torchrun, as one of its processes."""
    with joined() as ranks, ExitStack() as shown:
        ranks.together(lambda: check_restarts(out))
        splits, first = {"train": files, "valid": valid or {}, "test": test or {}}, ranks.is_first
        checked = ranks.together(
            lambda: recipe_of(recipe, changes, short=short, files=splits, columns=columns, is_told=first)
        )
        is_ours = out is None or not out.exists()
        runs, name = Path("runs"), Path(recipe).stem
        folder = out or ranks.first(ranks.together(lambda: next_folder(runs, name) if ranks.is_first else runs))
        with written_by(ranks, folder, is_ours=is_ours):
            if ranks.is_first:
                if live:
                    shown.enter_context(live_page(folder))  # Which ends after the run has left its folder.
                beginning = checked.model.start
                tell(f"{folder}: reading data" if beginning is None else f"{folder}: reading {beginning} and data")
            run, prepared = start_again(checked, folder, ranks) if is_restart() else start(checked, folder, ranks)
            drive(run, prepared, folder, explain=explain, page=page, tensorboard=tensorboard, as_json=as_json)


def sweep_command(
    fields: Sequence[str],
    recipe: str,
    changes: Sequence[str],
    *,
    short: Mapping[str, object],
    files: Given,
    out: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Train as `train_command` does, once for every combination of the fields' values, into folders of one folder."""
    if options.get("page"):
        raise UserError("--page: expected one run, got --sweep; write the page with clearhead evaluate RUN --page FILE")

    def check(more: Sequence[str]) -> bool:
        splits, columns = {"train": files, **{split: options[split] for split in ("valid", "test")}}, options["columns"]
        checked = recipe_of(recipe, [*changes, *more], short=short, files=splits, columns=columns)
        return find(checked.task, where=recipe).higher_is_better

    def train_one(more: Sequence[str], folder: Path) -> None:
        train_command(recipe, [*changes, *more], short=short, files=files, out=folder, as_json=False, **options)

    def top() -> Path:
        return out or next_folder(Path("runs"), f"{Path(recipe).stem}-sweep")

    sweep(fields, check=check, train=train_one, folder=top, as_json=as_json)


@contextmanager
def written_by(ranks: Ranks, folder: Path, *, is_ours: bool = False) -> Iterator[None]:
    """Holds a run's folder. A run that cannot begin leaves the folder empty; Ctrl-C leaves what `resume` needs.

    `is_ours` says that this command has made the folder.
    """
    ranks.together(lambda: None if is_run(folder) else require_new(folder))  # Before a lock is written.
    with held(folder, ranks):
        is_new = is_free(folder)
        try:
            yield
        except (Exception, KeyboardInterrupt) as error:
            if isinstance(error, KeyboardInterrupt) and not is_free(folder):
                raise Interrupted(f"stopped; go on with: clearhead resume {pasted(folder)}", SIGINT) from None
            if is_new and ranks.is_first and not isinstance(error, Interrupted):
                undo(folder, is_ours=is_ours)
            raise


def recipe_of(
    recipe: str,
    changes: Sequence[str],
    *,
    short: Mapping[str, object],
    files: Mapping[str, Given],
    columns: Mapping[str, str | None] | None = None,
    is_told: bool = False,
) -> Recipe:
    """The recipe with the changes of the command line, checked as far as it can be without the data.

    `files` are those of the options, by split. `is_told` says whether to print what is guessed of a table.
    """
    if is_table(recipe):
        tables = table_recipe(recipe, files, columns or {}, is_told=is_told)
    elif is_picture_folder(recipe):
        tables = folder_recipe(Path(recipe), is_told=is_told)
    else:
        if is_conll(recipe):
            files, recipe = {**files, "train": {**files["train"], "data": Path(recipe)}}, "tagging"
        named = {name: column for name, column in (columns or {}).items() if column is not None}
        tables = recipes.merge(recipes.read(recipe), {"data": named} if named else {})
        for split, given in files.items():
            if any(given.values()):
                source = source_of(tables, given, where=recipe, prefix="" if split == "train" else f"{split}-")
                tables = recipes.merge(tables, {"data": {split: source}})
    tables = recipes.changed(tables, tables_given(changes, short, options=OPTIONS))
    # A missing file is reported last, because another mistake may be the reason.
    tables, problem = with_files(tables, where=recipe)
    checked = validate(tables, where=recipe)
    if problem:
        raise UserError(f"{recipe}: {problem}")
    if checked.model.start is None:
        architecture(checked.model, vocab_size=1000)  # Reports mistakes there before anything slow.
    return checked


def source_of(tables: Mapping[str, Any], given: Given, *, where: str, prefix: str) -> dict[str, Any]:
    """The table of a source with the files of these options, whose names begin with `prefix`."""
    files = find(tables.get("task"), where=f"{where}:task").files
    try:
        like = tables.get("data", {}).get("train") if prefix else None
        source = with_absolute_files(source_given(files, given, where=where, like=like), files)
        if prefix and (problem := files.missing(source)):
            raise UserError(f"{where}: {problem}")
    except UserError as error:
        raise UserError(str(error).replace("--", f"--{prefix}")) from None
    return source


def with_absolute_files(source: Mapping[str, Any], files: Files) -> dict[str, Any]:
    """The source with its files relative to the working directory, not to the recipe's folder."""
    fields = ["path"] if source.get("kind") == "table" else [*files.options.values()]

    def whole(value: str | Sequence[str]) -> str | list[str]:
        return absolute(value) if isinstance(value, str) else [absolute(one) for one in value]

    return {name: whole(value) if name in fields else value for name, value in source.items()}


def check_restarts(out: Path | None) -> None:
    """Raises UserError where torchrun may restart this command but could not find its run again."""
    if out is None and int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")) > 0:
        raise UserError("torchrun: expected --out with --max-restarts, got none; give --out FOLDER, to find the run by")


def is_restart() -> bool:
    """Whether torchrun has started this command before and restarts it because a process failed."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def start_again(recipe: Recipe, folder: Path, ranks: Ranks) -> tuple[Run, Prepared]:
    """The run that this command began before, from its newest checkpoint, or from the start if there is none."""
    if ranks.first(is_run(folder)):
        newest = newest_checkpoint(folder, ranks)
        if ranks.together(lambda: is_of(recipe, folder, newest)):
            return resume(folder, ranks)
    return start(recipe, folder, ranks)


def is_of(recipe: Recipe, folder: Path, newest: Path | None) -> bool:
    """Whether the folder holds a run of this recipe; `newest` is its newest checkpoint, if there is one."""
    saved = recipe_begun(folder) if newest is None else checkpoints.load(newest).json.get(RECIPE, {})
    # A checkpoint to start from changes `generation`, which the given recipe does not show.
    given = with_absolute_paths(recipe).model_dump(mode="json")
    return {**saved, "generation": None} == {**given, "generation": None}


def resume_command(
    folder: Path,
    changes: Sequence[str],
    *,
    short: Mapping[str, object],
    live: bool = False,
    tensorboard: bool,
    as_json: bool,
) -> None:
    """Resume a run, with changes to its recipe's training."""
    with joined() as ranks, ExitStack() as shown:
        given = ranks.together(lambda: training_of(changes, short))
        ranks.together(lambda: require_run(folder))
        with written_by(ranks, folder):
            if live and ranks.is_first:
                shown.enter_context(live_page(folder))
            run, prepared = resume(folder, ranks, changes=given)
            drive(run, prepared, folder, tensorboard=tensorboard, as_json=as_json)


def drive(
    run: Run,
    prepared: Prepared,
    folder: Path,
    *,
    explain: bool = False,
    page: Path | None = None,
    tensorboard: bool,
    as_json: bool,
) -> None:
    """Train with a progress bar and logs; report at the end where the model is and how to use it."""
    figures: dict[str, JsonValue] = {}
    place = pasted(folder)  # As a shell reads it.
    with ProgressBar(unit=run.task.unit) as bar, watching(EvaluationBar()):
        consumers: list[Callable[[Event], None]] = []
        if run.ranks.is_first:
            for line in prepared.data.lines():
                tell(line)
            consumers += [bar, MetricsLog(folder), *([TensorBoardLog(folder)] if tensorboard else []), Keeper(run)]
        for event in train(run):
            for consume in consumers:
                consume(event)
            if isinstance(event, Started) and run.ranks.is_first:
                note_data_report(folder, prepared)
                for lever in event.levers if explain else ():
                    tell(f"  {lever.name}: {lever.value}: {lever.why} (training.{lever.field})")
            if isinstance(event, Ended):
                if event.signal is not None:
                    raise Interrupted(
                        f"stopped after step {event.step:,}; go on with: clearhead resume {place}", event.signal
                    )
                figures |= {"seconds": event.seconds, "steps": event.step, "best_step": run.progress.best_step}
    if not run.ranks.is_first:
        return
    figures |= end(run, prepared, folder, page=page)
    if as_json:
        print(json.dumps(figures_at(run.progress.best_step, folder) | figures))


def with_files(tables: Mapping[str, Any], *, where: str) -> tuple[dict[str, Any], str]:
    """The tables, with placeholders if data files are missing, and an error message or ""."""
    data, files = tables.get("data"), find(tables.get("task"), where=f"{where}:task").files
    problem = files.missing(data.get("train") if isinstance(data, Mapping) else None)
    return recipes.merge(tables, {"data": {"train": files.table}} if problem else {}), problem


def next_folder(parent: Path, name: str) -> Path:
    """Creates a folder parent/name-N with the first free N, so that no other command takes it."""
    parent.mkdir(parents=True, exist_ok=True)
    for i in itertools.count(1):
        with suppress(FileExistsError):
            (folder := parent / f"{name}-{i}").mkdir()
            return folder
    raise AssertionError("a number is free")
