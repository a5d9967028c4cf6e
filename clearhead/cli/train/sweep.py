"""`clearhead train --sweep`: one run for each value of a field, and one table of their scores."""

import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from clearhead.checkpoints.weights.documents import read_json
from clearhead.cli.options import aligned, tell
from clearhead.cli.train.session import Output, figures_at, train_run
from clearhead.errors import NumericError, UserError
from clearhead.json_text import JsonObject
from clearhead.recipe import Recipe
from clearhead.recipe.places import BEST
from clearhead.session.running import next_folder
from clearhead.tasks.registry import find

Values = tuple[tuple[str, str], ...]
"""The fields of one run with their values."""


def sweep_runs(
    fields: Sequence[str],
    recipe_for: Callable[..., Recipe],
    changes: Sequence[str],
    name: str,
    out: Path | None,
    output: Output,
) -> None:
    """Train once for every combination of the values, and print the scores of all runs, best first.

    `recipe_for` returns the recipe with some changes; it raises UserError for a wrong one. No run begins before all are
    checked.
    """
    if output.page:
        raise UserError("--page: expected one run, got --sweep; write the page with clearhead evaluate RUN --page FILE")
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise UserError("--sweep: expected one process, got torchrun's; start each run by itself")
    runs = combinations(fields)
    recipes = [partial(recipe_for, [*changes, *(f"--{field}={value}" for field, value in run)]) for run in runs]
    higher_is_better = {find(recipe().task, where=name).higher_is_better for recipe in recipes} == {True}
    top = out or next_folder(Path("runs"), f"{name}-sweep")
    rows: list[JsonObject] = []
    for number, (run, recipe) in enumerate(zip(runs, recipes, strict=True), start=1):
        tell(f"run {number} of {len(runs)}: " + ", ".join(f"{field}={value}" for field, value in run))
        folder = top / str(number)
        try:
            train_run(recipe, name, folder, replace(output, as_json=False))
        except NumericError as error:
            tell(f"run {number} ended: {error}")
        rows.append(dict(run) | scores_of(folder) | {"run": str(folder)})
    rows.sort(key=lambda row: merit(row.get("score"), higher_is_better=higher_is_better), reverse=True)
    print(json.dumps(rows) if output.as_json else "\n".join(table(rows)))


def combinations(fields: Sequence[str]) -> list[Values]:
    """Every combination of the values of fields such as `training.clip=0.5,1`."""
    choices: list[list[tuple[str, str]]] = []
    for field in fields:
        name, _, values = field.partition("=")
        if not values or "." not in name:
            raise UserError(f"--sweep {field}: expected a field with its values, such as training.clip=0.5,1")
        choices.append([(name.removeprefix("--"), value) for value in values.split(",")])
    return list(itertools.product(*choices))


def scores_of(run: Path) -> JsonObject:
    """The score by which a run's best checkpoint was chosen, and all its scores; nothing for a run without one."""
    if not (run / BEST).is_file():
        return {}
    best: dict[str, Any] = read_json(run / BEST)
    return {"score": best["score"], **figures_at(best["step"], run), "step": best["step"]}


def merit(score: JsonValue, *, higher_is_better: bool) -> float:
    """A score with larger values for better ones; a run without one is the worst."""
    if not isinstance(score, float | int):
        return float("-inf")
    return score if higher_is_better else -score


def table(rows: Sequence[JsonObject]) -> Iterator[str]:
    """The rows under the names of their columns, without the score that another column shows too."""
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name != "score"]
    cells = [[shown(row.get(name)) for name in names] for row in rows]
    return aligned([[name.rpartition(".")[2] for name in names], *cells])


def shown(value: JsonValue) -> str:
    """A figure with four digits, or a dash."""
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
