"""Scores of a model on files or on its own data, and how they are printed."""

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from pydantic import JsonValue

from clearhead.api import load
from clearhead.brief import between
from clearhead.cli.judge.page import write_page
from clearhead.cli.options import given, tell
from clearhead.explorer.answering.checkpoints import checkpoint_named
from clearhead.json_text import JsonObject
from clearhead.progress import watching
from clearhead.runs import task_of
from clearhead.session.measuring import Measuring, own_data
from clearhead.tasks.floors import Floor, Floors, comparable, line_of, read_floors
from clearhead.tasks.task import Evaluation, Given, RecipeTask
from clearhead.training.consumers import EvaluationBar, sample_lines

WIDTH = 240
"""Cells of a line of a sample."""


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
    measuring = Measuring.of(model, files, given(**options), name=name)
    tell(f"{name}: measuring ...")
    with watching(EvaluationBar()):
        return measuring.task, measuring.evaluation(model), measuring.where


def show(
    task: type[RecipeTask[Any]],
    found: Evaluation,
    *,
    floors: Sequence[Floor],
    model: str,
    where: str,
    page: Path | None,
    stream: TextIO,
) -> None:
    """Prints the scores with what simple methods score on the same examples, the findings and the samples.

    Writes the page of the worst mistakes if `page` is given.
    """
    for score in found.scores:
        interval = "" if score.interval is None else f", 95% interval {between(score.interval)}"
        about = f"{score.signature or score.unit}{interval}"
        print(f"{score.name:<18} {score.value:10.4f}  {about}".rstrip(), file=stream)
    if floors:
        print(beside(floors, found.value(floors[0].score)), file=stream)
    for finding in found.findings:
        print(*finding.lines, sep="\n", file=stream)
    if task.samples and found.samples:
        print(f"{task.samples}:", *sample_lines(found.samples, width=WIDTH), sep="\n", file=stream)
    if page is not None:
        write_page(page, model=model, data=where, found=found)
        tell(f"the worst mistakes: {page}")


def judge(folder: Path, *, device: str, page: Path | None = None) -> tuple[Evaluation, Sequence[Floor]]:
    """Prints the scores of a run's best model on its own data, with samples and floors, to standard error."""
    model = load(folder, device=device)
    task, recipe = task_of(str(folder), model)
    with watching(EvaluationBar()):
        found = task.measure(model, recipe, None, {})
    where = own_data(recipe)
    tell(f"the best model on {where}:")
    floors = floors_of(folder, found)
    show(task, found, floors=floors, model=str(folder), where=where, page=page, stream=sys.stderr)
    return found, floors


def beside(floors: Sequence[Floor], value: float) -> str:
    """One line with what simple methods score on the examples on which a model has this score."""
    return f"floor of {line_of(floors)}; this model {value:.4f}"


def floors_of(folder: Path, found: Evaluation) -> Sequence[Floor]:
    """What simple methods score on the own data of the run in this folder, on which a model was evaluated."""
    return comparable((read_floors(folder) or Floors()).on("test", "valid"), found)


def figures(found: Evaluation, floors: Sequence[Floor]) -> JsonObject:
    """The scores by name, the findings, and the floors."""
    scores = json_of({one.name: one.value for one in found.scores})
    return scores | {one.name: one.values for one in found.findings} | floor_figures(floors)


def floor_figures(floors: Sequence[Floor]) -> JsonObject:
    """The floors, if there are some."""
    return {"floor": [one.model_dump(mode="json") for one in floors]} if floors else {}


def json_of(figures: Mapping[str, JsonValue]) -> JsonObject:
    """Figures by name; infinity and NaN, which JSON does not have, are null."""
    return {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in figures.items()}
