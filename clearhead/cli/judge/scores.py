"""Scores of a model on files or on its own data, and how they are printed."""

import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from pydantic import JsonValue, TypeAdapter, ValidationError

from clearhead.api import load
from clearhead.cli.judge.page import write_page
from clearhead.cli.options import between, given, tell
from clearhead.errors import UserError
from clearhead.explorer.answering.checkpoints import checkpoint_named
from clearhead.progress import watching
from clearhead.recipe import Recipe
from clearhead.recipe.data import Source
from clearhead.runs import task_of
from clearhead.session.recipes import source_given
from clearhead.tasks.task import Evaluation, Given, RecipeTask
from clearhead.training.consumers import EvaluationBar, sample_lines

WIDTH = 240
"""Cells of a line of a sample."""
_source: TypeAdapter[Source] = TypeAdapter(Source)


def measured(
    name: str,
    *,
    files: Given,
    options: Mapping[str, Any],
    int8: bool = False,
    int4: bool = False,
    device: str,
) -> tuple[type[RecipeTask[Any]], Evaluation, str]:
    """The task of a model, its evaluation on files or on the data of its recipe, and the name of these data."""
    model = load(checkpoint_named(name), int8=int8, int4=int4, device=device)
    task, recipe = task_of(name, model)
    table = source_given(task.files, files, where=name, like=dict(recipe.data.train) if recipe else None)
    if (wrong := task.files.missing(table)) or (not table and recipe is None):
        raise UserError(f"{name}: {wrong or task.files.wrong(())}")
    source = _source_of(table, where=name) if table else None
    chosen = given(**options)
    for option in chosen.keys() - set(task.measures):
        raise UserError(f"--{option.replace('_', '-')}: expected a model of another task, got {name}; leave it out")
    tell(f"{name}: measuring ...")
    where = " and ".join(map(str, source.files)) if source else own_data(recipe)
    with watching(EvaluationBar()):
        return task, task.measure(model, recipe, source, chosen), where


def _source_of(table: Mapping[str, Any], *, where: str) -> Source:
    """The source of a table. Raises UserError if it lacks columns, which a model without a recipe does not know."""
    try:
        return _source.validate_python(table).under(Path())
    except ValidationError as error:
        if table.keys() & {"source", "target", "text"}:
            raise UserError(f"{where}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
        raise UserError(
            f"{where}: expected the columns of {table.get('path')}, got none;"
            " give --text NAME, or --source NAME and --target NAME"
        ) from None


def show(
    task: type[RecipeTask[Any]], found: Evaluation, *, model: str, where: str, page: Path | None, stream: TextIO
) -> None:
    """Prints the scores, the findings and the samples; writes the page of the worst mistakes if `page` is given."""
    for score in found.scores:
        interval = "" if score.interval is None else f", 95% interval {between(score.interval)}"
        about = f"{score.signature or score.unit}{interval}"
        print(f"{score.name:<18} {score.value:10.4f}  {about}".rstrip(), file=stream)
    for finding in found.findings:
        print(*finding.lines, sep="\n", file=stream)
    if task.samples and found.samples:
        print(f"{task.samples}:", *sample_lines(found.samples, width=WIDTH), sep="\n", file=stream)
    if page is not None:
        write_page(page, model=model, data=where, found=found)
        tell(f"the worst mistakes: {page}")


def judge(folder: Path, *, device: str, page: Path | None = None) -> dict[str, JsonValue]:
    """Prints the scores of a run's best model on its own data, with samples, to standard error; returns the scores."""
    model = load(folder, device=device)
    task, recipe = task_of(str(folder), model)
    with watching(EvaluationBar()):
        found = task.measure(model, recipe, None, {})
    where = own_data(recipe)
    tell(f"the best model on {where}:")
    show(task, found, model=str(folder), where=where, page=page, stream=sys.stderr)
    return figures(found)


def figures(found: Evaluation) -> dict[str, JsonValue]:
    """The scores by name, and the findings."""
    return json_of({one.name: one.value for one in found.scores}) | {one.name: one.values for one in found.findings}


def own_data(recipe: Recipe | None) -> str:
    """The data on which a model is measured if no files are given."""
    named = recipe.data.sources if recipe else ()
    names = {"test": "its test data", "valid": "its validation data"}
    return next((words for name, words in names.items() if name in named), "data held out from its training")


def json_of(figures: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Figures by name; infinity and NaN, which JSON does not have, are null."""
    return {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in figures.items()}
