"""A run of the command line: its folder, its progress on the console, and what stands there in the end."""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead.cli.judge.scores import beside, figures, floor_figures, json_of, judge
from clearhead.cli.options import tell
from clearhead.cli.train.watch import live_page
from clearhead.errors import Interrupted, UserError, pasted
from clearhead.json_text import JsonObject
from clearhead.progress import watching
from clearhead.recipe import Recipe, leaves_length
from clearhead.runs import Prepared, keep_floors, resume, start, with_absolute_paths
from clearhead.session.remarks import Ending
from clearhead.session.running import next_folder, record, written_by
from clearhead.storage import checkpoints
from clearhead.tasks.floors import line_of
from clearhead.training.consumers import EvaluationBar, ProgressBar, TensorBoardLog
from clearhead.training.events import Ended, Event, Started
from clearhead.training.metrics_log import read_metrics
from clearhead.training.ranks import Ranks, joined
from clearhead.training.run import Run
from clearhead.training.run_folder import (
    RECIPE,
    is_run,
    recipe_begun,
    require_run,
)
from clearhead.training.saving import newest_checkpoint


@dataclass(frozen=True)
class Output:
    """What a command shows of a run besides messages."""

    explain: bool = False
    page: Path | None = None
    live: bool = False
    tensorboard: bool = False
    as_json: bool = False


def train_run(recipe_for: Callable[..., Recipe], name: str, out: Path | None, output: Output) -> None:
    """Trains a recipe in a new folder: `out`, or the next named `name`. Under torchrun, as one of its processes.

    `recipe_for` returns the recipe, and says what it guesses if `is_told`.
    """
    with joined() as ranks, ExitStack() as pages:
        ranks.together(lambda: check_restarts(out))
        recipe = ranks.together(lambda: recipe_for(is_told=ranks.is_first))
        is_ours = out is None or not out.exists()
        runs = Path("runs")
        folder = out or ranks.first(ranks.together(lambda: next_folder(runs, name) if ranks.is_first else runs))
        with written_by(ranks, folder, is_ours=is_ours):
            if ranks.is_first:
                if output.live:
                    pages.enter_context(live_page(folder))  # Which ends after the run has left its folder.
                begins = recipe.model.start
                tell(f"{folder}: reading data" if begins is None else f"{folder}: reading {begins} and data")
            run, prepared = start_again(recipe, folder, ranks) if is_restart() else start(recipe, folder, ranks)
            drive(run, prepared, folder, output)


def resume_run(folder: Path, changes: Callable[[], Mapping[str, object]], output: Output) -> None:
    """Resumes the run in a folder, with changes to its recipe's training."""
    with joined() as ranks, ExitStack() as pages:
        given = ranks.together(changes)
        ranks.together(lambda: require_run(folder))
        with written_by(ranks, folder):
            if output.live and ranks.is_first:
                pages.enter_context(live_page(folder))
            run, prepared = resume(folder, ranks, changes=given)
            drive(run, prepared, folder, output)


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
    documents: Mapping[str, Any] = (
        {RECIPE: recipe_begun(folder)} if newest is None else {**checkpoints.load(newest).json}
    )
    saved = documents.get(RECIPE, {})
    # A checkpoint to start from changes `generation`, which the given recipe does not show.
    given = with_absolute_paths(recipe).model_dump(mode="json")
    if leaves_length(recipe):
        given |= {name: saved.get(name) for name in ("model", "training")}
    elif given["training"]["blend"] is None:  # It may follow from the first weights.
        given["training"] |= {"blend": saved.get("training", {}).get("blend")}
    return {**saved, "generation": None} == {**given, "generation": None}


def drive(run: Run, prepared: Prepared, folder: Path, output: Output) -> None:
    """Train with a progress bar and logs; report at the end where the model is and how to use it."""
    about: JsonObject = {}
    with ProgressBar(unit=run.task.unit) as bar, watching(EvaluationBar()):
        shows: list[Callable[[Event], None]] = []
        if run.ranks.is_first:
            for line in prepared.data.lines():
                tell(line)
            shows += [bar, *([TensorBoardLog(folder)] if output.tensorboard else [])]
        for event in record(run, prepared, folder):
            for show in shows:
                show(event)
            if isinstance(event, Started) and run.ranks.is_first:
                if floors := keep_floors(folder, prepared).on("test", "valid"):
                    tell(f"floor on {floors[0].split} data, {line_of(floors)}")
                for option in event.performance_options if output.explain else ():
                    tell(f"  {option.name}: {option.value}: {option.why} (training.{option.field})")
            if isinstance(event, Ended):
                if event.signal is not None:
                    raise Interrupted(
                        f"stopped after step {event.step:,}; go on with: clearhead resume {pasted(folder)}",
                        event.signal,
                    )
                about |= {"seconds": event.seconds, "steps": event.step, "best_step": run.progress.best_step}
    if not run.ranks.is_first:
        return
    found = end(run, prepared, folder, page=output.page)
    if output.as_json:
        print(json.dumps(found | about))


def end(run: Run, prepared: Prepared, folder: Path, *, page: Path | None) -> JsonObject:
    """Judge the best model on all held-out data, unless its last evaluation did, and say how good it is and its use."""
    task, best, place = prepared.task, run.progress.best_step, pasted(folder)
    found: JsonObject = figures_at(best, folder)
    if task.few is not None:
        tell(f"the best checkpoint was chosen on {task.few}; now it is judged on all that is held out")
    if task.samples or page or task.few is not None:
        evaluation, floors = judge(folder, device=run.device.type, page=page)
        found["held_out"] = shown = figures(evaluation, floors)
        value = shown.get(task.main_score)
    else:
        floors, value = keep_floors(folder, prepared).on("valid"), found.get(task.main_score)
        found |= floor_figures(floors)
        if floors and isinstance(value, float):
            tell(beside(floors, value))
    if isinstance(value, float) and (ending := Ending.of(run, folder)) is not None:
        remarks = [*ending.remarks(floors, value, higher_is_better=task.higher_is_better)]
        found["remarks"] = [*remarks]
        for line in remarks:
            tell(line)
    tell(f"model: {folder}" + (f" (best: step {best:,})" if best is not None else ""))
    tell(f"use it: clearhead {task.use.format(place)}\nmeasure it: clearhead evaluate {place}")
    tell(f"look inside: clearhead explore {place}")
    return found


def figures_at(step: int | None, folder: Path) -> JsonObject:
    """The scores of the evaluation at this step, from the run's log, since an earlier process may have made it."""
    for event in reversed(read_metrics(folder)):
        scores = event.get("scores")
        if event["step"] == step and isinstance(scores, dict):
            return json_of({name: one.get("value") for name, one in scores.items() if isinstance(one, dict)})
    return {}
