"""The places of the page, by name and by what opens them; and a run with checkpoints to see in time."""

from pathlib import Path
from typing import Any

from clearhead.api import load
from clearhead.runs import Keeper
from clearhead.training.metrics_log import MetricsLog
from clearhead.training.train import train
from tests.explorer.browser.page import SECONDS, Opened, Served, becomes
from tests.training.tiny import begin, write_recipe

VIEWS = {
    "overview": "Overview",
    "tokens": "Text → tokens", "image": "Image → patches", "embedding": "Embedding", "position": "+ Position",
    "attention": "Softmax", "output": "Heads together", "norm": "Add & norm", "ffn": "Feed-forward",
    "logits": "Logits → word",
    "heads": "Heads", "residual": "Residual stream", "lens": "Logit lens", "circuits": "Circuits",
    "geometry": "Geometry", "examples": "Examples", "scale": "Why √dₖ", "generation": "Generation",
    "patching": "Patching", "training": "Training time",
}  # fmt: skip

LOGITS = {"classification": "Logits → class", "tagging": "Logits → label"}


def show(opened: Opened, view: str) -> None:
    """Go to a place, and wait until everything in it is there."""
    kind = opened.served.model.config.head.kind
    opened.step(LOGITS.get(kind, VIEWS[view]) if view == "logits" else VIEWS[view])
    opened.settled()
    becomes(lambda: opened.fragment().get("view", "attention"), view)
    opened.quiet(4 * SECONDS if view == "overview" else SECONDS)
    opened.page.evaluate("for (const one of document.querySelectorAll('main details')) one.open = true")


def of_run(serve: Any, folder: Path) -> Served:
    """A run of 12 quick steps with checkpoints and a log, opened at its best."""
    fast = {"optimizer": {"kind": "adamw", "lr": 0.03}, "schedule": {"kind": "constant", "warmup": 2}}
    run = begin(write_recipe(folder, **fast), folder / "run")
    consumers = [MetricsLog(folder / "run"), Keeper(run)]
    for event in train(run):
        for consume in consumers:
            consume(event)
    return serve(str(folder / "run"), load(folder / "run"), folder=folder / "run")
