"""From a recipe to a run and back: its data, tokenizer, network and folder, and changes to a run that is resumed."""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import JsonValue

from clearhead.api import CONFIG, Model, architecture, model_json, predicting, read_config
from clearhead.api.pretrained import BROKEN
from clearhead.checkpoints.weights.documents import CONFIG_LIMIT, read_json
from clearhead.data.splits import require_same
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.model.adapter import adapt
from clearhead.model.target_scaling import begin_at
from clearhead.pretrained_start import (
    complete_recipe,
    fitting_of,
    pretrained_start,
    teacher_for,
    teacher_of,
    under_head,
)
from clearhead.randomness import key
from clearhead.recipe import Recipe, leaves_length, merge
from clearhead.recipe.places import BAD_ROWS, BEST, FLOOR
from clearhead.recipe.training import Training
from clearhead.storage import checkpoints
from clearhead.storage.checkpoints import shortage
from clearhead.storage.disk import replace_file
from clearhead.tasks.evaluation import few_of
from clearhead.tasks.floors import Floors, HasFloors, read_floors
from clearhead.tasks.registry import find, validate
from clearhead.tasks.task import Begins, Prepared, RecipeTask
from clearhead.text import formats
from clearhead.text.tokenizers import Tokenizer
from clearhead.training import run_folder
from clearhead.training.events import Ended, Event, Saved
from clearhead.training.progress import LIMITS, Length, require_limit
from clearhead.training.ranks import ALONE, Ranks
from clearhead.training.run import Run
from clearhead.training.run_folder import RECIPE, REPORT, lock_folder, with_absolute_paths
from clearhead.training.saving import newest_checkpoint
from clearhead.training.sharding import check_ranks

_log = logging.getLogger("clearhead")

DATA = "data.json"


def start(recipe: Recipe, folder: Path, ranks: Ranks = ALONE) -> tuple[Run, Prepared]:
    """A new run of this recipe. Its checkpoints go to `folder`, which must be new or empty.

    Every process of the run calls this and gets its part of the run. The recipe is written to the folder first, so that
    `resume` can begin the run again if it ends before its first checkpoint.
    """
    ranks.together(lambda: run_folder.require_new(folder))
    is_ours = not folder.exists()
    try:
        return _start(recipe, folder, ranks)
    except Exception:
        if ranks.is_first:
            run_folder.undo(folder, is_ours=is_ours)
        raise


def _start(recipe: Recipe, folder: Path, ranks: Ranks) -> tuple[Run, Prepared]:
    ranks = ranks.arranged(recipe.training)
    recipe = with_absolute_paths(recipe)
    with lock_folder(folder, ranks):
        ranks.together(lambda: run_folder.begin_folder(folder, recipe) if ranks.is_first else None)
    if not leaves_length(recipe):
        require_limit(recipe.training)
    given = recipe.training
    recipe, network, prepared = ranks.together(lambda: begin(recipe, ranks))
    if ranks.is_first and recipe.training != given:
        run_folder.write_recipe(folder, recipe)
    files = checkpoints.Checkpoint(
        json={
            CONFIG: model_json(network.config, recipe.generation, recipe.adapter, base=recipe.model.start),
            RECIPE: recipe.model_dump(mode="json"),
            DATA: {"sha256": dict(prepared.data.fingerprints)},
            **prepared.data.documents,
        },
        raw=prepared.data.files,
    )
    return _run(recipe, network, prepared, folder, files, ranks), prepared


def _run(
    recipe: Recipe,
    network: Transformer,
    prepared: Prepared,
    folder: Path,
    files: checkpoints.Checkpoint,
    ranks: Ranks,
    changes: Mapping[str, JsonValue] | None = None,
) -> Run:
    """The run of this network, once all processes can share it and the teacher fits it."""
    task, training = prepared.task, recipe.training
    ranks.together(lambda: check_ranks(network, task, training, ranks, read=prepared.data.digest))
    teacher = ranks.together(lambda: teacher_for(recipe, network.config, prepared.data.files, ranks))
    about = {"changes": changes or {}, "adapter": recipe.adapter, "teacher": teacher}
    return Run(network, task, training, folder, files, ranks=ranks, **about)


def begin(recipe: Recipe, ranks: Ranks = ALONE) -> tuple[Recipe, Transformer, Prepared]:
    """The recipe as the run keeps it, its network and its task. They are the same in every process."""
    base = pretrained_start(recipe, ranks) if recipe.model.start is not None else None
    found = base.network.config if base else architecture(recipe.model, vocab_size=1)
    if base is None:  # A model that is too large even without its vocabulary is refused before the data are read.
        fitting_of(recipe, ranks).check_model(found)
    recipe = complete_recipe(recipe, found, base)
    begun = base or teacher_of(recipe)
    prepared = prepared_to_train(recipe, begun.reader.tokenizer if begun else None)
    recipe = prepared.recipe or recipe
    found = found if base else architecture(recipe.model, prepared.data.vocab_size)
    config = prepared.task.fit(found)
    if base is None:
        network = fitting_of(recipe, ranks).new_network(config, prepared.task)
        begin_at(network, prepared.task.target_scale)
        if isinstance(prepared.task, Begins) and (blend := prepared.task.begin(network)):
            training = recipe.training
            blend = training.blend or (None if training.ema is not None else blend)
            recipe = recipe.model_copy(update={"training": training.model_copy(update={"blend": blend})})
        return recipe, network, prepared
    is_new = config.head != found.head
    network = under_head(base.network, config.head, seed=recipe.training.seed) if is_new else base.network
    if is_new:
        begin_at(network, prepared.task.target_scale)
    if recipe.adapter is not None:
        torch.manual_seed(key(recipe.training.seed, "adapter"))
        adapt(network, recipe.adapter)
    return recipe, network, prepared


def resume(folder: Path, ranks: Ranks = ALONE, *, changes: Mapping[str, object] | None = None) -> tuple[Run, Prepared]:
    """The run in this folder, after its newest checkpoint that verifies, with `changes` to its `training`.

    A run that ended before its first checkpoint begins again from the recipe in its folder, which records the changes
    for the next resume. The number of processes may differ from before: the losses and the order of the data stay the
    same. Raises UserError for a change that the checkpoint cannot follow, or that leaves nothing to train.
    """
    check_resume(folder, changes or {}, ranks)
    given, newest = changes or {}, newest_checkpoint(folder, ranks)
    if newest is None:
        begun = ranks.together(
            lambda: validate(merge(run_folder.recipe_begun(folder), {"training": given}), where=f"{folder}/{RECIPE}")
        )
        return _start(begun, folder, ranks)
    before, recipe, prepared, saved = ranks.together(lambda: _reopen(folder, newest, given))
    ranks = ranks.arranged(recipe.training)
    config, _ = read_config(saved.json[CONFIG], where=f"{newest}/{CONFIG}")
    fitting = fitting_of(recipe, ranks)
    ranks.together(lambda: fitting.check_run(config, prepared.task))
    kept = {name: saved.json[name] for name in (CONFIG, DATA, *prepared.data.documents)}
    own = kept | {RECIPE: recipe.model_dump(mode="json")}
    files, network = checkpoints.Checkpoint(json=own, raw=saved.raw), Transformer(config)
    if recipe.adapter is not None:
        adapt(network, recipe.adapter)
    changed = differences(before.training, recipe.training)
    run = _run(recipe, network, prepared, folder, files, ranks, changed)
    run.restore(newest)
    apply_changes(run, where=folder)
    ranks.together(lambda: run_folder.write_recipe(folder, recipe) if changed and ranks.is_first else None)
    return run, prepared


def check_resume(folder: Path, changes: Mapping[str, object], ranks: Ranks) -> None:
    """Raises OutOfMemory unless this machine can train the run in this folder. Called before verifying its checkpoint.

    Several processes are checked after they are arranged instead.
    """
    if ranks.size > 1:
        return
    try:
        newest = max(path for path in folder.glob("step-*") if path.is_dir())
        tables = run_folder.recorded(folder, read_json(newest / RECIPE, limit=CONFIG_LIMIT), changes)
        recipe = validate(tables, where=str(newest / RECIPE))
        config, _ = read_config(read_json(newest / CONFIG, limit=CONFIG_LIMIT), where=str(newest / CONFIG))
    except BROKEN:
        return
    fitting_of(recipe, ranks).check_model(config)


def _reopen(
    folder: Path, newest: Path, changes: Mapping[str, object]
) -> tuple[Recipe, Recipe, Prepared, checkpoints.Checkpoint]:
    """The checkpoint's recipe, the changed recipe, the task, and the checkpoint's files."""
    saved = checkpoints.load(newest)
    if RECIPE not in saved.json:
        raise UserError(
            f"{newest}: expected a run's checkpoint, got a model without {RECIPE}; start it with clearhead train"
        )
    before = validate(saved.json[RECIPE], where=f"{newest}/{RECIPE}")
    recipe = validate(run_folder.recorded(folder, saved.json[RECIPE], changes), where=f"{folder}/{RECIPE}")
    require_same_tensors(before.training, recipe.training, where=folder)
    has_tokenizer = formats.is_there(saved.raw)
    prepared = prepared_to_train(recipe, Tokenizer.from_files(saved.raw, where=str(newest)) if has_tokenizer else None)
    require_same(recipe.data, prepared.data.fingerprints, saved.json[DATA].get("sha256"), where=folder)
    return before, recipe, prepared, saved


class Keeper:
    """Points `best.json` at the best checkpoint and removes the checkpoints that `training` does not keep."""

    def __init__(self, run: Run) -> None:
        self.run, self.is_told = run, False

    def __call__(self, event: Event) -> None:
        """Consume one event of the training loop."""
        folder, at, config = self.run.folder, self.run.progress, self.run.config
        # At the end too: the process may have been killed between a checkpoint and this call.
        if folder is None or not isinstance(event, Saved | Ended):
            return
        steps = checkpoints.steps_in(folder)
        if at.best_step in steps:
            score = {"checkpoint": f"step-{at.best_step:08d}", "step": at.best_step, "score": at.best_score}
            replace_file(folder / BEST, json.dumps(score).encode())
        keep = {*spaced(steps, config.keep_spaced), *([at.best_step] if at.best_step is not None else [])}
        checkpoints.prune(folder, keep_last=config.keep_last, keep=sorted(keep))
        if isinstance(event, Saved) and not self.is_told:
            line = shortage(folder, event.folder, config.keep_last + config.keep_spaced + 2)  # The best, and the next.
            self.is_told = bool(line)
            if line:
                _log.warning("%s", line)


def spaced(steps: Sequence[int], n: int) -> list[int]:
    """At most n of these steps, about evenly spaced: the first step of every stretch of 2^k, for the least k that fits.

    Later choices, when there are more steps, are among the earlier ones, because a stretch of 2^(k+1) is two of 2^k.
    Steps in between, such as that of a signal, change nothing.
    """
    if n == 0:
        return []
    stride = 1
    while len(firsts := {step // stride: step for step in sorted(steps, reverse=True)}) > n:
        stride *= 2
    return sorted(firsts.values())


def note_data_report(folder: Path, prepared: Prepared) -> None:
    """Write the data report, and the rows that are left out, beside the run's checkpoints."""
    if prepared.data.bad_rows:
        replace_file(folder / BAD_ROWS, "".join(f"{row}\n" for row in prepared.data.bad_rows).encode())
    if prepared.data.report is not None:
        replace_file(folder / REPORT, prepared.data.report.model_dump_json(indent=2).encode())


def keep_floors(folder: Path, prepared: Prepared) -> Floors:
    """What simple methods score on the data that are held out. The run's folder keeps it from the first call on."""
    found = read_floors(folder)
    if found is None:
        task = prepared.task
        found = Floors(floors=tuple(task.floors(prepared.data.held_out)) if isinstance(task, HasFloors) else ())
        replace_file(folder / FLOOR, found.model_dump_json(indent=2).encode())
    return found


def prepare_task(recipe: Recipe, tokenizer: Tokenizer | None) -> Prepared:
    """The recipe's task with its data. A task of texts trains a tokenizer on them unless one is given."""
    return find(recipe.task, where="task").prepare(recipe, tokenizer)


def prepared_to_train(recipe: Recipe, tokenizer: Tokenizer | None) -> Prepared:
    """The recipe's task with its data, whose evaluations measure as many examples as its training says."""
    prepared = prepare_task(recipe, tokenizer)
    task, sizes = prepared.task, prepared.task.sizes()
    task.few = few_of(sizes, recipe.training.evaluate_examples)
    task.evaluation_tokens = sum(sizes if task.few is None else (sizes[i] for i in task.few.rows))
    return prepared


def task_of(name: str, model: Model) -> tuple[type[RecipeTask[Any]], Recipe | None]:
    """The task and the recipe of the run that wrote a model. A model from elsewhere gets a task that it can do."""
    recipe = None if model.recipe is None else validate(model.recipe, where=f"{name}:{RECIPE}")
    return predicting.task_of(model, name=name), recipe


MADE_WITH = ("optimizer.kind", "weights", "freeze")
"""Fields that decide which tensors a checkpoint holds, besides whether `ema` is set."""
ARITHMETIC = ("precision", "matmul_precision", "weights")
"""Fields that the arithmetic depends on."""


def differences(before: Training, after: Training) -> dict[str, JsonValue]:
    """The fields that differ, each with its value before and after: {"optimizer.lr": [0.001, 0.0005]}."""
    old, new = (dict(_flat(training.model_dump(mode="json"))) for training in (before, after))
    names = dict.fromkeys([*old, *new])
    return {name: [old.get(name), new.get(name)] for name in names if old.get(name) != new.get(name)}


def require_same_tensors(before: Training, after: Training, *, where: Path) -> None:
    """Raises UserError for a change that the tensors of a checkpoint cannot follow."""
    changed = differences(before, after)
    fixed = [*MADE_WITH, "blend", *(["ema"] if (before.ema is None) != (after.ema is None) else [])]
    for name in fixed:
        if isinstance(pair := changed.get(name), list):
            old, new = ("none" if value is None else value for value in pair)
            raise UserError(
                f"--training.{name}: expected {old}, as the checkpoints of {where} were made, got {new}; leave it out,"
                f" or begin a new run with clearhead train and --model.start {where}"
            )


def apply_changes(run: Run, *, where: Path) -> None:
    """Let the changes of a restored run take effect. Raises UserError if its new limits leave nothing to train."""
    at, config = run.progress, run.config
    if run.changes.keys() & set(ARITHMETIC):
        at.precision = ""  # It is chosen again.
    if "evaluate_examples" in run.changes:
        at.best_score = at.best_loss = None  # Scores of other examples cannot be compared.
    if run.changes:
        at.evaluations_since_best = 0  # A run that patience ended goes on.
    n_batches = len(run.task.plan(seed=config.seed, epoch=0))
    if run.changes.keys() & set(LIMITS) and Length.of(config, n_batches).done(at) >= 1.0:
        limits = " and ".join(f"training.{name}={dict(config)[name]:g}" for name in LIMITS if dict(config)[name])
        raise UserError(
            f"{where}: expected limits beyond step {at.step:,}, epoch {at.step * config.accumulate / n_batches:.1f} and"
            f" minute {at.seconds / 60:.1f}, where the run is, got {limits}; give a later one, and"
            " --training.NAME null for a limit to lift"
        )


def _flat(table: Mapping[str, JsonValue], prefix: str = "") -> Iterator[tuple[str, JsonValue]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
