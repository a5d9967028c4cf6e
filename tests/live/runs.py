"""Folders of runs as `train` writes them, without training."""

import json
import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from clearhead.recipe.places import METRICS, OWNER, RECIPE
from clearhead.tasks.evaluation import Evaluation, Sample
from clearhead.tasks.scores import Score
from clearhead.training.events import Ended, Evaluated, Event, Saved, Started, Stepped
from clearhead.training.metrics_log import MetricsLog

STARTED = Started(0, 1000, "bf16", "cpu", n_trained=100, unit="words")
RECIPE_TABLES: dict[str, Any] = {
    "task": "tagging",
    "data": {"train": {"kind": "tagged", "paths": ["far/away/train.conll"]}},
    "model": {"preset": "classifier", "start": None},
    "training": {
        "steps": 40,
        "max_tokens": 512,
        "optimizer": {"kind": "adamw", "lr": 0.003},
        "schedule": {"kind": "wsd", "warmup": 5},
        "seed": 0,
    },
}


def stepped(step: int, **changes: Any) -> Stepped:
    fields: dict[str, Any] = {"epoch": 0, "loss": 4.0 / step, "lr": 1e-3, "grad_norm": 1.0, "n_tokens": 50}
    fields |= {"seconds": step / 2, "progress": step / 40}
    return Stepped(**{"step": step, **fields, **changes})


def evaluated(step: int, value: float, *, is_best: bool) -> Evaluated:
    sample = Sample("a <b> c", "O", "B-x")
    return Evaluated(step, Evaluation((Score("span_f1", value), Score("loss", 0.5)), (sample,), loss=0.5), is_best)


def events(n: int = 20) -> list[Event]:
    """Of 40 steps, the first n, with an evaluation at each tenth."""
    found: list[Event] = [STARTED]
    for step in range(1, n + 1):
        found.append(stepped(step))
        if step % 10 == 0:
            found += [evaluated(step, step / 100, is_best=True), Saved(step, Path(f"step-{step:08d}"))]
    return found


def feed(folder: Path, some: Iterable[Event]) -> None:
    log = MetricsLog(folder)
    for event in some:
        log(event)


def begun(folder: Path, some: Iterable[Event] = (), *, process: int | None = None) -> Path:
    """A run's folder with its recipe, these events, and the process that writes to it."""
    folder.mkdir(exist_ok=True)
    (folder / RECIPE).write_text(json.dumps(RECIPE_TABLES), encoding="utf-8")
    feed(folder, some)
    if process is not None:
        (folder / OWNER).write_text(f"process {process} on {socket.gethostname()}", encoding="utf-8")
    if (folder / METRICS).exists():
        os.utime(folder / METRICS, (1e9, 1e9))
    return folder


FINISHED = Ended(20, 10.0, "finished")
