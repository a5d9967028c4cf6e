"""`clearhead evaluate` and `summary`."""

import json
import math
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from clearhead.api import CONFIG, Model, load, model_folder, named_config
from clearhead.commands import tell
from clearhead.commands.use import searching
from clearhead.data.encoded import EncodedPairs, EncodedText
from clearhead.data.sources import Pairs, Texts, read
from clearhead.data.splits import language_splits, translation_splits
from clearhead.errors import UserError
from clearhead.machine.device import keep_freed_memory
from clearhead.model.summary import summarize
from clearhead.recipe import LanguageRecipe, TranslationRecipe, validate
from clearhead.recipe.data import ParallelFiles, Source, TextFiles
from clearhead.recipe.evaluation import Tokenize
from clearhead.recipe.generation import GenerationConfig
from clearhead.runs import RECIPE
from clearhead.tasks.language_model import LanguageModel
from clearhead.tasks.metrics import Score, moses_bleu
from clearhead.tasks.translation import Translation
from clearhead.weights.documents import read_json

UNITS = {"exact_match": "0 to 1", "loss": "nats a token"}


def evaluate_command(
    name: str,
    *,
    source: Path | None,
    target: Path | None,
    text: Path | None,
    search: Mapping[str, Any],
    tokenize: Tokenize | None,
    moses: str | None,
    int8: bool,
    device: str,
    as_json: bool,
) -> None:
    """Measure a model on files, or on its recipe's test (else validation) data."""
    if (source is None) != (target is None):
        raise UserError("evaluate: expected --source and --target together, got one of them")
    keep_freed_memory()
    model = load(name, int8=int8, device=device)
    given: Source | None = None
    if source is not None and target is not None:
        given = ParallelFiles(source=source, target=target)
    elif text is not None:
        given = TextFiles(paths=(text,))
    if model.is_encoder_decoder and text is not None:
        raise UserError(f"{name}: expected --source and --target for a translator, got --text")
    if not model.is_encoder_decoder and any(one is not None for one in (source, tokenize, moses)):
        raise UserError(f"{name}: expected --text for a language model, got what is for a translator")
    config = searching(model, search) if model.is_encoder_decoder else model.generation
    tell(f"{name}: measuring ...")
    scores, where = score(model, Path(name), given, config, tokenize=tokenize, moses=moses)
    given_files = " and ".join(str(path) for path in (source, target, text) if path is not None)
    tell(f"{name} on {given_files or f'its {where} data'}:")
    for one in scores:
        print(shown(one), file=sys.stderr if as_json else sys.stdout)
    if as_json:
        print(json.dumps(json_of({one.name: one.value for one in scores})))


def score(
    model: Model,
    folder: Path,
    given: Source | None,
    generation: GenerationConfig,
    *,
    tokenize: Tokenize | None = None,
    moses: str | None = None,
) -> tuple[list[Score], str]:
    """A model's figures on the given data, or on its recipe's test (else validation) data; and what those are.

    `tokenize` is BLEU's: None takes the recipe's, or "auto" where there is no recipe. `moses` adds the BLEU of papers
    on small corpora, which has a tokenizer of its own.
    """
    recipe = recipe_of(folder)
    if given is not None:
        data: Pairs | Texts = read(given)
        where = " and ".join(
            str(v) for n, v in given.model_dump().items() if n in ("source", "target", "path", "paths")
        )
    else:
        if recipe is None:
            raise UserError(f"{folder}: no recipe with data; give --source and --target, or --text")
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
    if tokenize is None:
        tokenize = recipe.evaluation.tokenize if isinstance(recipe, TranslationRecipe) else "auto"
    task = Translation(model.tokenizer, pairs, pairs, max_tokens=4096, generation=generation, tokenize=tokenize)
    evaluation = task.measure(model.network, pairs, generation)
    outputs = list(evaluation.outputs)
    extra = [moses_bleu(outputs, data.target, moses)] if moses is not None else []
    return [*evaluation.scores, *extra], where


def recipe_of(folder: Path) -> TranslationRecipe | LanguageRecipe | None:
    """The recipe of the run whose model is in this folder; None for a model that no run wrote."""
    is_elsewhere = (folder / CONFIG).is_file() and not (folder / RECIPE).is_file()
    if is_elsewhere or not folder.is_dir() or not (path := model_folder(folder) / RECIPE).is_file():
        return None
    return validate(read_json(path), where=str(path))


def _language_scores(model: Model, documents: Iterable[Iterable[str]], length: int, *, running: bool) -> list[Score]:
    text = EncodedText.of(documents, model.tokenizer, running=running, generation=model.generation)
    task = LanguageModel(model.tokenizer, text, text, length=length, max_tokens=8192, generation=model.generation)
    return list(task.measure(model.network))


def summary_command(
    name: str, *, batch: int, source_length: int | None, target_length: int | None, as_json: bool
) -> None:
    """Print a summary by component."""
    summary = summarize(named_config(name), batch=batch, source_length=source_length, target_length=target_length)
    print("\n".join(summary.lines()), file=sys.stderr if as_json else sys.stdout)
    if as_json:
        print(json.dumps(summary.to_json()))


def shown(one: Score) -> str:
    """A figure with its name, and its unit or how it was computed."""
    return f"{one.name:<18} {one.value:10.4f}  {one.signature or UNITS.get(one.name, '')}".rstrip()


def json_of(figures: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Figures by name; JSON has no infinity and no NaN, which are null."""
    return {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in figures.items()}
