"""The end of `train` and `resume`: the last judgement, the scores, and how to use the model."""

from pathlib import Path

from pydantic import JsonValue

from clearhead.cli.options import tell
from clearhead.cli.judge.evaluate import json_of, judge
from clearhead.errors import pasted
from clearhead.runs import Prepared
from clearhead.training.metrics_log import read_metrics
from clearhead.training.run import Run


def end(run: Run, prepared: Prepared, folder: Path, *, page: Path | None) -> dict[str, JsonValue]:
    """Judge the best model on all held-out data, unless its last evaluation did, and say how to use it."""
    task, best, place = prepared.task, run.progress.best_step, pasted(folder)
    held_out: dict[str, JsonValue] = {}
    if task.few is not None:
        tell(f"the best checkpoint was chosen on {task.few}; now it is judged on all that is held out")
    if task.samples or page or task.few is not None:
        held_out = {"held_out": judge(folder, device=run.device.type, page=page)}
    tell(f"model: {folder}" + (f" (best: step {best:,})" if best is not None else ""))
    tell(f"use it: clearhead {task.use.format(place)}\nmeasure it: clearhead evaluate {place}")
    tell(f"look inside: clearhead explore {place}")
    return held_out


def figures_at(step: int | None, folder: Path) -> dict[str, JsonValue]:
    """The scores of the evaluation at this step, from the run's log, since an earlier process may have made it."""
    for event in reversed(read_metrics(folder)):
        scores = event.get("scores")
        if event["step"] == step and isinstance(scores, dict):
            return json_of({name: one.get("value") for name, one in scores.items() if isinstance(one, dict)})
    return {}
