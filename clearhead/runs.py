"""From a recipe to a run and back: data, tokenizer, network and folder put together."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import ValidationError

from clearhead.api import BEST, CONFIG, Model, architecture, load, model_folder, model_json, read_config
from clearhead.config import ModelConfig
from clearhead.data.corpus import Corpus, encoded_language, encoded_translation
from clearhead.data.encoded import EncodedPairs, EncodedText
from clearhead.data.report import DataReport
from clearhead.data.sources import Pairs, Texts, read
from clearhead.data.splits import language_splits, require_same, translation_splits
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.model.assign import assemble
from clearhead.randomness import key
from clearhead.recipe import LanguageRecipe, ModelChoice, TranslationRecipe, explain, merge, validate
from clearhead.recipe.data import Source
from clearhead.recipe.generation import GenerationConfig
from clearhead.tasks.language_model import LanguageModel
from clearhead.tasks.metrics import Score, moses_bleu
from clearhead.tasks.task import Task
from clearhead.tasks.translation import Translation
from clearhead.training import beginning, checkpoints
from clearhead.training.beginning import RECIPE, REPORT, with_absolute_paths
from clearhead.training.disk import replace_text
from clearhead.training.events import Ended, Event, Saved
from clearhead.training.lock import held
from clearhead.training.manifest import STEP
from clearhead.training.ranks import ALONE, Ranks
from clearhead.training.saving import newest_checkpoint
from clearhead.training.sharding import check_ranks
from clearhead.training.tensors import model_tensors
from clearhead.training.train import Run, require_limit

DATA = "data.json"
SPECIAL = ("start_id", "end_ids", "pad_id", "forced_first_id", "forced_last_id", "banned_ids")
"""Settings of generation that belong to a checkpoint and its tokenizer."""


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
    recipe, network, prepared = ranks.together(lambda: _begin(recipe))
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
    recipe: TranslationRecipe | LanguageRecipe,
) -> tuple[TranslationRecipe | LanguageRecipe, Transformer, Prepared]:
    """The recipe as the run keeps it, new weights and the task: the same in every process."""
    require_limit(recipe.training)
    base = foundation(recipe) if recipe.model.start is not None else None
    if base is not None:
        recipe = recipe.model_copy(update={"generation": base.generation})
    prepared = prepare_task(recipe, base.tokenizer if base else None)
    config = base.network.config if base else architecture(recipe.model, prepared.tokenizer.vocab_size)
    prepared.task.check(config)
    torch.manual_seed(key(recipe.training.seed, "init"))
    return recipe, base.network if base else Transformer(config), prepared


# --- somebody else's checkpoint ----------------------------------------------------------------------------------


def foundation(recipe: TranslationRecipe | LanguageRecipe) -> Model:
    """The model that `model.start` names, in float32, with the recipe's dropouts and its settings of generation.

    Its special tokens stay, where the recipe names none. Raises UserError for one that cannot do the recipe's task.
    """
    name = recipe.model.start
    assert name is not None
    model = load(name, dtype=torch.float32)
    task = Translation if isinstance(recipe, TranslationRecipe) else LanguageModel
    task.check_kind(model.config, where=name, remedy="try another model.start")
    if not model.has_tokenizer:
        raise UserError(f"{name}: expected a tokenizer with the model, got none; try to put its files into the folder")
    config = with_dropouts(model.config, recipe.model)
    # Copies: the loaded ones are still in the checkpoint's files, which may be gone before they are touched.
    tensors = {tensor: values.clone() for tensor, values in model_tensors(model.network).items()}
    ours, ids = dict(recipe.generation), model.tokenizer
    theirs = dict(model.generation)
    kept = {field: theirs[field] for field in SPECIAL if ours[field] in (None, ())}
    generation = recipe.generation.model_copy(update=kept)
    return Model(
        assemble(config, tensors, where=name),
        ids,
        generation.with_ids(start_id=ids.bos_id, end_id=ids.eos_id, pad_id=ids.pad_id),
    )


def with_dropouts(config: ModelConfig, choice: ModelChoice) -> ModelConfig:
    """The architecture with the dropouts that a recipe gives its stacks."""
    tables = config.model_dump(mode="json")
    for stack, changes in {"encoder": choice.encoder, "decoder": choice.decoder}.items():
        if tables[stack] is not None:
            tables[stack] |= choice.stacks | changes
        elif changes:
            raise UserError(f"model.{stack}: {choice.start} has no {stack}; try model.stacks")
    try:
        return ModelConfig.model_validate(tables)
    except ValidationError as error:
        raise UserError(explain(error, "model")) from None


def resume(folder: Path, ranks: Ranks = ALONE, *, changes: Mapping[str, object] | None = None) -> tuple[Run, Prepared]:
    """The run in this folder, after its newest checkpoint that verifies; `changes` are to its `training`.

    A run that ended before its first checkpoint begins again, from the recipe in its folder.

    The number of processes may be another than before: losses, and the order of the data, stay what they were.
    """
    given, newest = {"training": changes or {}}, newest_checkpoint(folder, ranks)
    if newest is None:
        begun = ranks.together(
            lambda: validate(merge(beginning.recipe_begun(folder), given), where=f"{folder}/{RECIPE}")
        )
        return _start(begun, folder, ranks)
    recipe, prepared, saved = ranks.together(lambda: _reopen(folder, newest, given))
    ranks = ranks.arranged(recipe.training)
    config, _ = read_config(saved.json[CONFIG], where=f"{newest}/{CONFIG}")
    own = {name: saved.json[name] for name in (CONFIG, DATA)} | {RECIPE: recipe.model_dump(mode="json")}
    files, network = checkpoints.Files(json=own, raw=saved.raw), Transformer(config)
    ranks.together(lambda: check_ranks(network, prepared.task, recipe.training, ranks, read=prepared.digest))
    run = Run(network, prepared.task, recipe.training, folder, files, ranks=ranks)
    run.restore(newest)
    return run, prepared


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
            replace_text(folder / BEST, json.dumps(score))
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
        replace_text(folder / REPORT, prepared.report.model_dump_json(indent=2))


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


# --- measuring ---------------------------------------------------------------------------------------------------


def score(
    model: Model, folder: Path, given: Source | None, generation: GenerationConfig, *, moses: str | None = None
) -> tuple[list[Score], str]:
    """A model's figures on the given data, or on its recipe's test (else validation) data; and what those are."""
    if given is not None:
        data: Pairs | Texts = read(given)
        where = " and ".join(
            str(v) for n, v in given.model_dump().items() if n in ("source", "target", "path", "paths")
        )
    else:
        if not folder.is_dir() or not (model_folder(folder) / RECIPE).is_file():
            raise UserError(f"{folder}: no recipe with data; give --source and --target, or --text")
        saved = checkpoints.load(model_folder(folder))
        recipe = validate(saved.json[RECIPE], where=f"{folder}/{RECIPE}")
        if isinstance(recipe, TranslationRecipe):
            splits = translation_splits(recipe.data)
            where = "test" if "test" in splits else "valid"
            data = Pairs.of(splits[where])
        else:
            train, valid = language_splits(recipe.data)
            running = train.n_documents == 1
            return _language_scores(model, valid, recipe.data.length, running=running), "valid"
    if isinstance(data, Texts):
        length = model.config.output.max_length or 256
        return _language_scores(model, data, length, running=len(data) == 1), where
    pairs = EncodedPairs.of(data, model.tokenizer)
    task = Translation(model.tokenizer, pairs, pairs, max_tokens=4096, generation=generation)
    evaluation = task.measure(model.network, pairs, generation)
    outputs = list(evaluation.outputs)
    extra = [moses_bleu(outputs, data.target, moses)] if moses is not None else []
    return [*evaluation.scores, *extra], where


def _language_scores(model: Model, documents: Iterable[Iterable[str]], length: int, *, running: bool) -> list[Score]:
    text = EncodedText.of(documents, model.tokenizer, running=running, generation=model.generation)
    task = LanguageModel(model.tokenizer, text, text, length=length, max_tokens=8192, generation=model.generation)
    return list(task.measure(model.network))
