"""`clearhead train` and `resume`."""

import itertools
import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import SIGINT
from typing import Any

from pydantic import JsonValue

from clearhead import recipe as recipes
from clearhead.api import architecture
from clearhead.commands import tell
from clearhead.commands.measure import json_of
from clearhead.errors import Interrupted, UserError
from clearhead.recipe import LanguageRecipe, TranslationRecipe
from clearhead.runs import (
    Keeper,
    Prepared,
    note_data_report,
    resume,
    start,
    with_absolute_paths,
)
from clearhead.storage import checkpoints
from clearhead.training.beginning import RECIPE, is_free, is_run, recipe_begun, require_new, require_run, undo
from clearhead.training.consumers import MetricsLog, ProgressBar, TensorBoardLog, read_metrics
from clearhead.training.events import Ended, Event, Started
from clearhead.training.lock import held
from clearhead.training.ranks import Ranks, joined
from clearhead.training.run import Run
from clearhead.training.saving import newest_checkpoint
from clearhead.training.train import train

TABLES = ("task", "data", "tokenizer", "model", "training", "evaluation", "generation")
"""Of a recipe: `--training.steps 9` sets a field of one."""
PLACEHOLDERS: dict[str, dict[str, Any]] = {
    "translation": {"kind": "parallel", "source": "-", "target": "-"},
    "lm": {"kind": "text", "paths": ["-"]},
}
OPTIONS = ("source", "target", "text", "out", "tensorboard", "json")


def train_command(
    recipe: str,
    changes: Sequence[str],
    *,
    short: Mapping[str, object],
    files: Mapping[str, Path | None],
    out: Path | None,
    explain: bool = False,
    tensorboard: bool,
    as_json: bool,
) -> None:
    """Train from a recipe with changes, into a new folder; as one of several processes where torchrun started them."""
    with joined() as ranks:
        ranks.together(lambda: check_restarts(out))
        checked = ranks.together(lambda: recipe_of(recipe, changes, short=short, files=files))
        is_ours = out is None or not out.exists()
        runs, name = Path("runs"), Path(recipe).stem
        folder = out or ranks.first(ranks.together(lambda: next_folder(runs, name) if ranks.is_first else runs))
        with written_by(ranks, folder, is_ours=is_ours):
            if ranks.is_first:
                beginning = checked.model.start
                tell(f"{folder}: reading data" if beginning is None else f"{folder}: reading {beginning} and data")
            run, prepared = start_again(checked, folder, ranks) if is_restart() else start(checked, folder, ranks)
            drive(run, prepared, folder, explain=explain, tensorboard=tensorboard, as_json=as_json)


@contextmanager
def written_by(ranks: Ranks, folder: Path, *, is_ours: bool = False) -> Iterator[None]:
    """Hold a run's folder. Nothing stays of a run that cannot begin; of one that Ctrl-C stops, what it goes on from.

    `is_ours`: this command has made the folder.
    """
    ranks.together(lambda: None if is_run(folder) else require_new(folder))  # Else we touch nothing, not even a lock.
    with held(folder, ranks):
        is_new = is_free(folder)
        try:
            yield
        except (Exception, KeyboardInterrupt) as error:
            if isinstance(error, KeyboardInterrupt) and not is_free(folder):
                raise Interrupted(f"stopped; go on with: clearhead resume {shlex.quote(str(folder))}", SIGINT) from None
            if is_new and ranks.is_first and not isinstance(error, Interrupted):
                undo(folder, is_ours=is_ours)
            raise


def recipe_of(
    recipe: str, changes: Sequence[str], *, short: Mapping[str, object], files: Mapping[str, Path | None]
) -> TranslationRecipe | LanguageRecipe:
    """The recipe with what the line changes, checked as far as can be without the data."""
    tables = recipes.merge(recipes.read(recipe), data_of(files, recipe))
    given = [(f"training.{name}", str(value)) for name, value in short.items() if value is not None]
    tables = recipes.changed(tables, recipes.nested([*given, *pairs(changes, options=(*OPTIONS, *short))]))
    problem = data_problem(tables)
    if problem:
        # Any other mistake is told first: it may be why the data are not where they should be.
        tables = recipes.merge(tables, {"data": {"train": PLACEHOLDERS[str(tables["task"])]}})
    checked = recipes.validate(tables, where=recipe)
    if problem:
        raise UserError(f"{recipe}: {problem}")
    if checked.model.start is None:
        architecture(checked.model, vocab_size=1000)  # What is wrong there is told before anything takes long.
    return checked


def check_restarts(out: Path | None) -> None:
    """Nothing, if torchrun could start this again and would find the run; else UserError."""
    if out is None and int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")) > 0:
        raise UserError("torchrun: expected --out with --max-restarts, got none; give --out FOLDER, to find the run by")


def is_restart() -> bool:
    """Whether torchrun has started this command before, and some process of it has failed."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def start_again(recipe: TranslationRecipe | LanguageRecipe, folder: Path, ranks: Ranks) -> tuple[Run, Prepared]:
    """The run that this command began before: from its newest checkpoint, or, before there was one, anew."""
    if ranks.first(is_run(folder)):
        newest = newest_checkpoint(folder, ranks)
        if ranks.together(lambda: is_of(recipe, folder, newest)):
            return resume(folder, ranks)
    return start(recipe, folder, ranks)


def is_of(recipe: TranslationRecipe | LanguageRecipe, folder: Path, newest: Path | None) -> bool:
    """Whether the folder is of a run of this recipe; `newest` is its checkpoint, where there is one."""
    saved = recipe_begun(folder) if newest is None else checkpoints.load(newest).json.get(RECIPE, {})
    # A checkpoint to start from decides about generation; the line does not say so.
    given = with_absolute_paths(recipe).model_dump(mode="json")
    return {**saved, "generation": None} == {**given, "generation": None}


def resume_command(folder: Path, *, changes: Mapping[str, object], tensorboard: bool, as_json: bool) -> None:
    """Go on with a run; `changes` are to its recipe's training."""
    with joined() as ranks:
        given = {name: value for name, value in changes.items() if value is not None}
        ranks.together(lambda: require_run(folder))
        with written_by(ranks, folder):
            run, prepared = resume(folder, ranks, changes=given)
            drive(run, prepared, folder, tensorboard=tensorboard, as_json=as_json)


def drive(
    run: Run, prepared: Prepared, folder: Path, *, explain: bool = False, tensorboard: bool, as_json: bool
) -> None:
    """Train, with a bar, logs and a tidy run folder; says at the end where the model is and what to do with it."""
    figures: dict[str, JsonValue] = {}
    place = shlex.quote(str(folder))  # For commands to copy.
    with ProgressBar() as bar:
        consumers: list[Callable[[Event], None]] = []
        if run.ranks.is_first:
            for line in prepared.lines():
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
    best = run.progress.best_step
    example = 'translate {} "A sentence."' if run.network.encoder else 'generate {} "The beginning"'
    tell(f"model: {folder}" + (f" (best: step {best:,})" if best is not None else ""))
    tell(f"use it: clearhead {example.format(place)}\nmeasure it: clearhead evaluate {place}")
    if as_json:
        print(json.dumps(figures_at(best, folder) | figures))


def figures_at(step: int | None, folder: Path) -> dict[str, JsonValue]:
    """The scores of the evaluation at this step, from the run's log: a run that was resumed may not have made it."""
    for event in reversed(read_metrics(folder)):
        scores = event.get("scores")
        if event["step"] == step and isinstance(scores, dict):
            return json_of({name: one.get("value") for name, one in scores.items() if isinstance(one, dict)})
    return {}


def pairs(changes: Sequence[str], *, options: Sequence[str]) -> list[tuple[str, str]]:
    """`--training.clip 0.5` or `--training.clip=0.5` as (name, value); `options` are what else there is to mistype."""
    result: list[tuple[str, str]] = []
    rest = list(changes)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise UserError(f"{word}: expected a field such as --training.clip, got a value; write --FIELD VALUE")
        dashed, equals, value = word[2:].partition("=")
        name = dashed.replace("-", "_")
        if name.partition(".")[0] not in TABLES:
            meant = recipes.field_names().nearest(name, among=options)
            remedy = f"did you mean --{meant}?" if meant else "write a field of the recipe as --TABLE.FIELD VALUE"
            raise UserError(f"--{dashed}: no such option; {remedy}")
        if not equals:
            if not rest or rest[0].startswith("--"):
                raise UserError(f"--{dashed}: expected a value after it, got none; write --{dashed} VALUE")
            value = rest.pop(0)
        result.append((name, value))
    return result


def data_of(files: Mapping[str, Path | None], recipe: str) -> dict[str, Any]:
    """The recipe's training data where files are given on the line: relative to here, not to the recipe's folder."""
    source, target, text = (path and str(path.absolute()) for path in map(files.get, ("source", "target", "text")))
    if text is not None and (source or target):
        raise UserError(f"{recipe}: expected --source and --target, or --text, got both")
    if text is not None:
        return {"data": {"train": {"kind": "text", "paths": [text]}}}
    given = {"source": source, "target": target}
    found = {name: path for name, path in given.items() if path is not None}
    return {"data": {"train": {"kind": "parallel", **found}}} if found else {}


def data_problem(tables: Mapping[str, Any]) -> str:
    """What is wrong where the files to learn from are missing or of the wrong kind, and the options to give; or ''."""
    data, task = tables.get("data"), tables.get("task")
    train = data.get("train") if isinstance(data, Mapping) else None
    if not isinstance(train, Mapping) or train.get("kind") not in ("parallel", "text") or task not in PLACEHOLDERS:
        return ""
    given = [name for name in ("source", "target", "paths") if train.get(name)]
    if train["kind"] == PLACEHOLDERS[task]["kind"] and set(given) >= PLACEHOLDERS[task].keys() - {"kind"}:
        return ""
    got = "only " + " and ".join("--text" if name == "paths" else f"--{name}" for name in given) if given else "none"
    if task == "translation":
        return f"expected sentences and their translations, got {got}; give --source FILE --target FILE"
    return f"expected a text to learn from, got {got}; give --text FILE"


def next_folder(parent: Path, name: str) -> Path:
    """parent/name-1, or the first number that is free: made here, so that no other command takes it too."""
    parent.mkdir(parents=True, exist_ok=True)
    for i in itertools.count(1):
        with suppress(FileExistsError):
            (folder := parent / f"{name}-{i}").mkdir()
            return folder
    raise AssertionError("a number is free")
