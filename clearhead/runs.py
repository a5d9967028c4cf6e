"""From a recipe to a run and back: data, tokenizer, network and folder put together."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from clearhead.api import BEST, CONFIG, Model, architecture, model_folder, model_json, read_config
from clearhead.data.report import DataReport, prepare
from clearhead.data.sources import Pairs, Texts, read, read_pairs, read_texts
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.randomness import key
from clearhead.recipe import LanguageData, LanguageRecipe, TranslationData, TranslationRecipe, validate
from clearhead.recipe.data import HubDataset, ParallelFiles, Source, Table, TextFiles
from clearhead.recipe.generation import GenerationConfig
from clearhead.tasks.language_model import LanguageModel
from clearhead.tasks.metrics import Score, moses_bleu
from clearhead.tasks.task import Task
from clearhead.tasks.translation import EncodedPairs, Translation
from clearhead.training import checkpoints
from clearhead.training.manifest import STEP, reason, sync
from clearhead.training.train import Ended, Event, Run, Saved, require_limit

RECIPE, DATA = "recipe.json", "data.json"


@dataclass(frozen=True)
class Prepared:
    """A task ready to train, what its data are like, and their fingerprint."""

    task: Task
    tokenizer: Tokenizer
    report: DataReport | None
    fingerprint: str


def start(recipe: TranslationRecipe | LanguageRecipe, folder: Path) -> tuple[Run, Prepared]:
    """A new run of this recipe, whose checkpoints go to `folder`, which must be new or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        got = "one with files" if folder.is_dir() else "a file"
        raise UserError(f"{folder}: expected a new folder for the run, got {got}; try another --out, or resume it")
    require_limit(recipe.training)
    recipe = with_absolute_paths(recipe)
    prepared = prepare_task(recipe, None)
    config = architecture(recipe.model, prepared.tokenizer.vocab_size)
    prepared.task.check(config)
    torch.manual_seed(key(recipe.training.seed, "init"))
    network = Transformer(config)
    files = checkpoints.Files(
        json={
            CONFIG: model_json(config, recipe.generation),
            RECIPE: recipe.model_dump(mode="json"),
            DATA: {"sha256": prepared.fingerprint},
        },
        raw=prepared.tokenizer.to_files(),
    )
    return Run(network, prepared.task, recipe.training, folder, files), prepared


def resume(folder: Path) -> tuple[Run, Prepared]:
    """The run in this folder, after its newest checkpoint that verifies."""
    checkpoints.clean(folder)
    newest = checkpoints.latest(folder) if folder.is_dir() else None
    if newest is None:
        raise UserError(f"{folder}: expected a run with a checkpoint, found none; start anew with clearhead train")
    saved = checkpoints.load(newest)
    if RECIPE not in saved.json:
        raise UserError(
            f"{newest}: expected a run's checkpoint, got a model without {RECIPE}; start it with clearhead train"
        )
    recipe = validate(saved.json[RECIPE], where=f"{newest}/{RECIPE}")
    tokenizer = Tokenizer.from_files(saved.raw, where=str(newest))
    prepared = prepare_task(recipe, tokenizer)
    if prepared.fingerprint != saved.json[DATA]["sha256"]:
        raise UserError(f"{folder}: the training data changed since this run began; restore them, or start a new run")
    config, _ = read_config(saved.json[CONFIG], where=f"{newest}/{CONFIG}")
    own = {name: saved.json[name] for name in (CONFIG, RECIPE, DATA)}
    run = Run(Transformer(config), prepared.task, recipe.training, folder, checkpoints.Files(json=own, raw=saved.raw))
    run.restore(newest)
    return run, prepared


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
        replace_text(folder / "data_report.json", prepared.report.model_dump_json(indent=2))


def replace_text(path: Path, text: str) -> None:
    """Write a small file that is, at any moment, the old or the new one; its folder is made where there is none."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        sync(temporary)
        os.replace(temporary, path)  # noqa: PTH105 - one system call, one name to fail in tests
    except OSError as error:
        raise UserError(f"{path}: expected to write it, got {reason(error)}; try another folder") from None


# --- data --------------------------------------------------------------------------------------------------------


def prepare_task(recipe: TranslationRecipe | LanguageRecipe, tokenizer: Tokenizer | None) -> Prepared:
    """Read the data, train the tokenizer unless there is one, and make the task."""
    if isinstance(recipe, TranslationRecipe):
        return _translation(recipe, tokenizer)
    return _language_model(recipe, tokenizer)


def _translation(recipe: TranslationRecipe, tokenizer: Tokenizer | None) -> Prepared:
    splits = translation_splits(recipe.data)
    train = splits["train"]
    tokenizer = tokenizer or Tokenizer.train([*train.source, *train.target], recipe.tokenizer)
    prepared = prepare(splits, tokenizer, preparation=recipe.data.preparation)
    encoded = {name: encode(prepared.examples, prepared.ids, name) for name in ("train", "valid")}
    task = Translation(
        tokenizer,
        encoded["train"],
        encoded["valid"],
        max_tokens=recipe.training.max_tokens,
        packed=recipe.training.packed,
        generation=recipe.generation,
    )
    return Prepared(task, tokenizer, prepared.report, fingerprint(train.source, train.target))


def encode(examples: Mapping[str, object], ids: Mapping[str, tuple[list[list[int]], ...]], name: str) -> EncodedPairs:
    """One prepared split as the task wants it."""
    text = examples[name]
    assert isinstance(text, Pairs)
    source, target = ids[name]
    return EncodedPairs(text, source, target)


def _language_model(recipe: LanguageRecipe, tokenizer: Tokenizer | None) -> Prepared:
    train, valid = language_splits(recipe.data)
    tokenizer = tokenizer or Tokenizer.train(train, recipe.tokenizer)
    task = LanguageModel(
        tokenizer,
        train,
        valid,
        length=recipe.data.length,
        max_tokens=recipe.training.max_tokens,
        generation=recipe.generation,
    )
    return Prepared(task, tokenizer, None, fingerprint(train))


def translation_splits(data: TranslationData) -> dict[str, Pairs]:
    """The recipe's splits; validation is held out of training where it has no source of its own."""
    train = read_pairs(located(data.train, data.folder))
    if data.valid is not None:
        splits = {"train": train, "valid": read_pairs(located(data.valid, data.folder))}
    else:
        if len(train) < 10:
            raise UserError(
                f"data.train: expected at least 10 pairs to hold some out, got {len(train)}; give data.valid"
            )
        n = min(data.held_out, len(train) // 5)
        ranked = sorted(range(len(train)), key=lambda i: (key("held out", train.source[i]), i))
        out = set(ranked[:n])
        # Every pair of a held-out source leaves training, so that no source is in both.
        sources = {train.source[i] for i in out}
        inside = [i for i in range(len(train)) if train.source[i] not in sources]
        splits = {"train": _take(train, inside), "valid": _take(train, sorted(out))}
    if data.test is not None:
        splits["test"] = read_pairs(located(data.test, data.folder))
    return splits


def language_splits(data: LanguageData) -> tuple[list[str], list[str]]:
    """Training and validation documents (one is running text); without its own source, validation is the end."""
    train = _documents(data.train, data.folder)
    if data.valid is not None:
        return train, _documents(data.valid, data.folder)
    if len(train) == 1:
        cut = int(len(train[0]) * (1 - data.held_out))
        return [train[0][:cut]], [train[0][cut:]]
    cut = min(int(len(train) * (1 - data.held_out)), len(train) - 1)
    return train[:cut], train[cut:]


def _documents(source: Source, folder: Path) -> list[str]:
    texts = [text for text in read_texts(located(source, folder)).text if text.strip()]
    whole_files = isinstance(source, TextFiles) and source.documents == "file"
    if not texts:
        raise UserError(f"data: expected text in {source.kind} source, got none; give another file")
    return ["\n".join(texts)] if whole_files else texts


def _take(pairs: Pairs, which: list[int]) -> Pairs:
    return Pairs([pairs.source[i] for i in which], [pairs.target[i] for i in which])


def located(source: Source, folder: Path) -> Source:
    """The same source with its relative paths under `folder`."""
    match source:
        case ParallelFiles():
            return source.model_copy(update={"source": folder / source.source, "target": folder / source.target})
        case Table():
            return source.model_copy(update={"path": folder / source.path})
        case TextFiles():
            return source.model_copy(update={"paths": tuple(folder / path for path in source.paths)})
        case HubDataset():
            return source


def with_absolute_paths(recipe: TranslationRecipe | LanguageRecipe) -> TranslationRecipe | LanguageRecipe:
    """The recipe as a run keeps it: found again from any working directory."""
    data = recipe.data.model_copy(update={"folder": recipe.data.folder.absolute()})
    return recipe.model_copy(update={"data": data})


def fingerprint(*columns: list[str]) -> str:
    """SHA-256 of the texts, in order."""
    digest = hashlib.sha256()
    for column in columns:
        digest.update("\0".join(column).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


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
        saved = checkpoints.load(model_folder(folder))
        if RECIPE not in saved.json:
            raise UserError(f"{folder}: no recipe with data; give --source and --target, or --text")
        recipe = validate(saved.json[RECIPE], where=f"{folder}/{RECIPE}")
        if isinstance(recipe, TranslationRecipe):
            splits = translation_splits(recipe.data)
            where = "test" if "test" in splits else "valid"
            data = splits[where]
        else:
            valid = Texts(language_splits(recipe.data)[1])
            return list(_language_task(model, valid, recipe.data.length).measure(model.network)), "valid"
    if isinstance(data, Texts):
        length = model.config.output.max_length or 256
        return list(_language_task(model, data, length).measure(model.network)), where
    ids = (model.tokenizer.encode_batch(data.source), model.tokenizer.encode_batch(data.target))
    pairs = EncodedPairs(data, *ids)
    task = Translation(model.tokenizer, pairs, pairs, max_tokens=4096, generation=generation)
    evaluation = task.measure(model.network, pairs, generation)
    outputs = list(evaluation.outputs)
    extra = [moses_bleu(outputs, data.target, moses)] if moses is not None else []
    return [*evaluation.scores, *extra], where


def _language_task(model: Model, texts: Texts, length: int) -> LanguageModel:
    return LanguageModel(
        model.tokenizer, texts.text, texts.text, length=length, max_tokens=8192, generation=model.generation
    )
