"""From a recipe to a run and back: data, tokenizer, network and folder put together."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clearhead.api import BEST, CONFIG, architecture, model_json, read_config
from clearhead.api.room import BROKEN
from clearhead.data.corpus import Corpus, encoded_language, encoded_translation
from clearhead.data.report import DataReport
from clearhead.data.splits import require_same
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import UserError
from clearhead.foundation import foundation
from clearhead.model import Transformer
from clearhead.recipe import LanguageRecipe, TranslationRecipe, merge, validate
from clearhead.storage import checkpoints
from clearhead.storage.disk import replace_file
from clearhead.storage.manifest import STEP
from clearhead.tasks.language_model import LanguageModel
from clearhead.tasks.task import Task
from clearhead.tasks.translation import Translation
from clearhead.training import beginning
from clearhead.training.beginning import RECIPE, REPORT, with_absolute_paths
from clearhead.training.events import Ended, Event, Saved
from clearhead.training.fitting import check_model, check_run, new_network
from clearhead.training.length import require_limit
from clearhead.training.lock import held
from clearhead.training.ranks import ALONE, Ranks
from clearhead.training.run import Run
from clearhead.training.saving import newest_checkpoint
from clearhead.training.sharding import check_ranks
from clearhead.weights.documents import CONFIG_LIMIT, read_json

DATA = "data.json"


@dataclass(frozen=True)
class Prepared:
    """A task ready to train, what its data are like, and their fingerprints."""

    task: Task
    tokenizer: Tokenizer
    report: DataReport | None
    fingerprints: Mapping[str, str]
    """Of the text of each split."""
    storage: str
    """Where the encoded data are, in words."""

    def lines(self) -> list[str]:
        """What was found, for people: one finding a line."""
        return [*(self.report.lines() if self.report else ()), self.storage]

    @property
    def digest(self) -> str:
        """Of the data and the tokenizer: equal wherever the same was read."""
        files = sorted(self.tokenizer.to_files().items())
        return hashlib.sha256(repr((sorted(self.fingerprints.items()), files)).encode()).hexdigest()


def start(recipe: TranslationRecipe | LanguageRecipe, folder: Path, ranks: Ranks = ALONE) -> tuple[Run, Prepared]:
    """A new run of this recipe, whose checkpoints go to `folder`, which must be new or empty.

    Where there are several processes all call this, and each gets its part of the run. The recipe is in the folder
    first of all, so that `resume` can begin the run again if it ends before its first checkpoint.
    """
    ranks.together(lambda: beginning.require_new(folder))
    is_ours = not folder.exists()
    try:
        return _start(recipe, folder, ranks)
    except Exception:
        if ranks.is_first:
            beginning.undo(folder, is_ours=is_ours)
        raise


def _start(recipe: TranslationRecipe | LanguageRecipe, folder: Path, ranks: Ranks) -> tuple[Run, Prepared]:
    ranks = ranks.arranged(recipe.training)
    recipe = with_absolute_paths(recipe)
    with held(folder, ranks):
        ranks.together(lambda: beginning.begin_folder(folder, recipe) if ranks.is_first else None)
    recipe, network, prepared = ranks.together(lambda: _begin(recipe, ranks))
    files = checkpoints.Files(
        json={
            CONFIG: model_json(network.config, recipe.generation),
            RECIPE: recipe.model_dump(mode="json"),
            DATA: {"sha256": dict(prepared.fingerprints)},
        },
        raw=prepared.tokenizer.to_files(),
    )
    ranks.together(lambda: check_ranks(network, prepared.task, recipe.training, ranks, read=prepared.digest))
    return Run(network, prepared.task, recipe.training, folder, files, ranks=ranks), prepared


def _begin(
    recipe: TranslationRecipe | LanguageRecipe, ranks: Ranks
) -> tuple[TranslationRecipe | LanguageRecipe, Transformer, Prepared]:
    """The recipe as the run keeps it, new weights and the task: the same in every process."""
    require_limit(recipe.training)
    base = foundation(recipe, ranks) if recipe.model.start is not None else None
    if base is None:  # The vocabulary is not known yet, but a model too large without one need not wait for it.
        check_model(architecture(recipe.model, vocab_size=1), recipe.training, ranks)
    else:
        recipe = recipe.model_copy(update={"generation": base.generation})
    prepared = prepare_task(recipe, base.tokenizer if base else None)
    config = base.network.config if base else architecture(recipe.model, prepared.tokenizer.vocab_size)
    prepared.task.check(config)
    network = base.network if base else new_network(config, prepared.task, recipe.training, ranks)
    return recipe, network, prepared


def resume(folder: Path, ranks: Ranks = ALONE, *, changes: Mapping[str, object] | None = None) -> tuple[Run, Prepared]:
    """The run in this folder, after its newest checkpoint that verifies; `changes` are to its `training`.

    A run that ended before its first checkpoint begins again, from the recipe in its folder.

    The number of processes may be another than before: losses, and the order of the data, stay what they were.
    """
    check_resume(folder, changes or {}, ranks)
    given, newest = {"training": changes or {}}, newest_checkpoint(folder, ranks)
    if newest is None:
        begun = ranks.together(
            lambda: validate(merge(beginning.recipe_begun(folder), given), where=f"{folder}/{RECIPE}")
        )
        return _start(begun, folder, ranks)
    recipe, prepared, saved = ranks.together(lambda: _reopen(folder, newest, given))
    ranks = ranks.arranged(recipe.training)
    config, _ = read_config(saved.json[CONFIG], where=f"{newest}/{CONFIG}")
    ranks.together(lambda: check_run(config, prepared.task, recipe.training, ranks))
    own = {name: saved.json[name] for name in (CONFIG, DATA)} | {RECIPE: recipe.model_dump(mode="json")}
    files, network = checkpoints.Files(json=own, raw=saved.raw), Transformer(config)
    ranks.together(lambda: check_ranks(network, prepared.task, recipe.training, ranks, read=prepared.digest))
    run = Run(network, prepared.task, recipe.training, folder, files, ranks=ranks)
    run.restore(newest)
    return run, prepared


def check_resume(folder: Path, changes: Mapping[str, object], ranks: Ranks) -> None:
    """Raise OutOfMemory unless the run in this folder can be trained here; called before its checkpoint is verified.

    Several processes are checked after they are arranged instead.
    """
    if ranks.size > 1:
        return
    try:
        newest = max(path for path in folder.glob("step-*") if path.is_dir())
        tables = merge(read_json(newest / RECIPE, limit=CONFIG_LIMIT), {"training": changes})
        training = validate(tables, where=str(newest / RECIPE)).training
        config, _ = read_config(read_json(newest / CONFIG, limit=CONFIG_LIMIT), where=str(newest / CONFIG))
    except BROKEN:
        return
    check_model(config, training, ranks)


def _reopen(
    folder: Path, newest: Path, changes: Mapping[str, object]
) -> tuple[TranslationRecipe | LanguageRecipe, Prepared, checkpoints.Files]:
    """The recipe with changes to its training, the task, and what the checkpoint holds."""
    saved = checkpoints.load(newest)
    if RECIPE not in saved.json:
        raise UserError(
            f"{newest}: expected a run's checkpoint, got a model without {RECIPE}; start it with clearhead train"
        )
    recipe = validate(merge(saved.json[RECIPE], changes), where=f"{newest}/{RECIPE}")
    prepared = prepare_task(recipe, Tokenizer.from_files(saved.raw, where=str(newest)))
    require_same(recipe.data, prepared.fingerprints, saved.json[DATA].get("sha256"), where=folder)
    return recipe, prepared, saved


class Keeper:
    """Points `best.json` at the best checkpoint, and removes those that nothing needs any more."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def __call__(self, event: Event) -> None:
        """Consume one event of the training loop."""
        folder, at, config = self.run.folder, self.run.progress, self.run.config
        # At the end too: a kill may have come between a checkpoint and this.
        if folder is None or not isinstance(event, Saved | Ended):
            return
        steps = sorted(checkpoints.step_of(path) for path in folder.glob("step-*") if STEP.fullmatch(path.name))
        if at.best_step in steps:
            score = {"checkpoint": f"step-{at.best_step:08d}", "step": at.best_step, "score": at.best_score}
            replace_file(folder / BEST, json.dumps(score).encode())
        keep = {*spaced(steps, config.keep_spaced), *([at.best_step] if at.best_step is not None else [])}
        checkpoints.prune(folder, keep_last=config.keep_last, keep=sorted(keep))


def spaced(steps: Sequence[int], n: int) -> list[int]:
    """At most n of these steps, about evenly spaced; each choice contains the next one as steps are added.

    The first step of every stretch of 2^k, for the least k that fits: a stretch of 2^(k+1) is two of 2^k, and saves
    at odd steps, such as at a signal or at the end, change nothing.
    """
    if n == 0:
        return []
    stride = 1
    while len(firsts := {step // stride: step for step in sorted(steps, reverse=True)}) > n:
        stride *= 2
    return sorted(firsts.values())


def note_data_report(folder: Path, prepared: Prepared) -> None:
    """Write the data report beside the run's checkpoints."""
    if prepared.report is not None:
        replace_file(folder / REPORT, prepared.report.model_dump_json(indent=2).encode())


# --- data --------------------------------------------------------------------------------------------------------


def prepare_task(recipe: TranslationRecipe | LanguageRecipe, tokenizer: Tokenizer | None) -> Prepared:
    """Read the data, train the tokenizer unless there is one, and make the task."""
    if isinstance(recipe, TranslationRecipe):
        return _translation(recipe, tokenizer)
    return _language_model(recipe, tokenizer)


def _translation(recipe: TranslationRecipe, tokenizer: Tokenizer | None) -> Prepared:
    corpus = Corpus.of(recipe.data)
    found = encoded_translation(recipe, corpus, tokenizer)
    task = Translation(
        found.tokenizer,
        found.train,
        found.valid,
        max_tokens=recipe.training.max_tokens,
        packed=recipe.training.packed,
        generation=recipe.generation,
        tokenize=recipe.evaluation.tokenize,
    )
    return Prepared(task, found.tokenizer, found.report, found.fingerprints, corpus.line())


def _language_model(recipe: LanguageRecipe, tokenizer: Tokenizer | None) -> Prepared:
    corpus = Corpus.of(recipe.data)
    found = encoded_language(recipe, corpus, tokenizer)
    task = LanguageModel(
        found.tokenizer,
        found.train,
        found.valid,
        length=recipe.data.length,
        max_tokens=recipe.training.max_tokens,
        generation=recipe.generation,
    )
    return Prepared(task, found.tokenizer, None, found.fingerprints, corpus.line())
