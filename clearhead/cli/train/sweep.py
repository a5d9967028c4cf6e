"""`clearhead train --sweep`: one run for each value of a field, and one table of their scores."""

import itertools
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import JsonValue

from clearhead.checkpoints.weights.documents import read_json
from clearhead.cli.options import aligned, tell
from clearhead.errors import NumericError, UserError
from clearhead.recipe.places import BEST
from clearhead.training.metrics_log import read_metrics

Values = tuple[tuple[str, str], ...]
"""The fields of one run with their values."""


def sweep_runs(
    fields: Sequence[str],
    *,
    check: Callable[[Sequence[str]], bool],
    train: Callable[[Sequence[str], Path], None],
    folder: Callable[[], Path],
    as_json: bool,
) -> None:
    """Train once for every combination of the values, and print the scores of all runs, best first.

    `check` takes the changes of a run and says whether higher scores are better; it raises UserError for a wrong one.
    `train` makes the run in a folder. No run begins before all are checked.
    """
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise UserError("--sweep: expected one process, got torchrun's; start each run by itself")
    runs = combinations(fields)
    higher_is_better = {check(words(run)) for run in runs} == {True}
    top = folder()
    rows: list[dict[str, JsonValue]] = []
    for number, run in enumerate(runs, start=1):
        tell(f"run {number} of {len(runs)}: " + ", ".join(f"{name}={value}" for name, value in run))
        try:
            train(words(run), top / str(number))
        except NumericError as error:
            tell(f"run {number} ended: {error}")
        rows.append(dict(run) | scores_of(top / str(number)) | {"run": str(top / str(number))})
    rows.sort(key=lambda row: merit(row.get("score"), higher_is_better=higher_is_better), reverse=True)
    print(json.dumps(rows) if as_json else "\n".join(table(rows)))


def combinations(fields: Sequence[str]) -> list[Values]:
    """Every combination of the values of fields such as `training.clip=0.5,1`."""
    choices: list[list[tuple[str, str]]] = []
    for field in fields:
        name, _, values = field.partition("=")
        if not values or "." not in name:
            raise UserError(f"--sweep {field}: expected a field with its values, such as training.clip=0.5,1")
        choices.append([(name.removeprefix("--"), value) for value in values.split(",")])
    return list(itertools.product(*choices))


def words(run: Values) -> list[str]:
    """The values as options of the command line."""
    return [f"--{name}={value}" for name, value in run]


def scores_of(run: Path) -> dict[str, JsonValue]:
    """The score by which a run's best checkpoint was chosen, and all its scores; nothing for a run without one."""
    if not (run / BEST).is_file():
        return {}
    best = read_json(run / BEST)
    found: dict[str, JsonValue] = {"score": best["score"]}
    for event in read_metrics(run):
        scores = event.get("scores")
        if event["step"] == best["step"] and isinstance(scores, dict):
            found |= {name: one.get("value") for name, one in scores.items() if isinstance(one, dict)}
    return found | {"step": best["step"]}


def merit(score: JsonValue, *, higher_is_better: bool) -> float:
    """A score with larger values for better ones; a run without one is the worst."""
    if not isinstance(score, float | int):
        return float("-inf")
    return score if higher_is_better else -score


def table(rows: Sequence[dict[str, JsonValue]]) -> list[str]:
    """The rows under the names of their columns, without the score that another column shows too."""
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name != "score"]
    cells = [[name.rpartition(".")[2] for name in names], *([shown(row.get(name)) for name in names] for row in rows)]
    return [*aligned(cells)]


def shown(value: JsonValue) -> str:
    """A figure to four digits; a dash for none."""
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
