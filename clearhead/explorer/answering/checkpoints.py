"""Reads a run folder's training: its checkpoints, its loss curve, and sample sentences."""

import math
import re
from collections.abc import Mapping
from pathlib import Path

from clearhead.api import Model, load, model_folder
from clearhead.errors import UserError
from clearhead.json_text import JsonObject
from clearhead.progress import cached
from clearhead.recipe.places import METRICS
from clearhead.storage.checkpoints import place_of, step_of
from clearhead.storage.manifest import STEP
from clearhead.training.metrics_log import read_metrics

MOST_LOSSES = 400


class RunCheckpoints:
    """The checkpoints of a run, oldest first; none if the model does not come from a run."""

    def __init__(self, folder: Path | None) -> None:
        """`folder` is the folder of a run or of a checkpoint."""
        own = None if folder is None or not folder.exists() else _checkpoint(folder)
        self.step = None if own is None else step_of(own)
        """The step of the model that is open."""
        self._folder = None if own is None else own.parent

    @cached
    def _events(self) -> list[JsonObject]:
        if self._folder is None or not (self._folder / METRICS).is_file():
            return []
        return read_metrics(self._folder)

    def steps(self) -> list[int]:
        """The steps of the checkpoints that exist now."""
        if self._folder is None:
            return []
        return sorted(step_of(path) for path in self._folder.iterdir() if STEP.fullmatch(path.name))

    def place(self, step: int) -> Path:
        """The folder of a checkpoint. Raises UserError if there is none of this step."""
        known = self.steps()
        if self._folder is None or step not in known:
            got = f"expected one of {', '.join(map(str, known))}" if known else "expected none, for a model of no run"
            raise UserError(f"step: {got}, got {step}; try another")
        return place_of(self._folder, step)

    def load(self, step: int) -> Model:
        """The model of a checkpoint. Raises UserError if there is none of this step."""
        return load(self.place(step))

    def history(self) -> list[dict[str, object]]:
        """Each checkpoint with its training loss and its main score, if the log has them."""
        scores = {event["step"]: _score(event) for event in self._events if event.get("kind") == "evaluated"}
        losses = dict(self._losses)
        found: list[dict[str, object]] = []
        for step in self.steps():
            before = [at for at in losses if at <= step]
            loss = losses[max(before)] if before else None
            found.append({"step": step, "loss": loss, "score": scores.get(step)})
        return found

    def losses(self) -> list[tuple[int, float]]:
        """The logged training losses, averaged over equal stretches to at most MOST_LOSSES points."""
        all_of_them = self._losses
        width = math.ceil(len(all_of_them) / MOST_LOSSES) or 1
        stretches = [all_of_them[i : i + width] for i in range(0, len(all_of_them), width)]
        return [(part[-1][0], sum(loss for _, loss in part) / len(part)) for part in stretches]

    def samples(self) -> list[tuple[str, str]]:
        """The sources and references of the last evaluation's samples."""
        for event in reversed(self._events):
            samples = event.get("samples")
            if isinstance(samples, list) and samples:
                texts = [sample for sample in samples if isinstance(sample, dict)]
                return [(str(sample.get("source", "")), str(sample.get("reference", ""))) for sample in texts]
        return []

    @cached
    def _losses(self) -> list[tuple[int, float]]:
        found: list[tuple[int, float]] = []
        for event in self._events:
            step, loss = event.get("step"), event.get("loss")
            if event.get("kind") != "stepped" or not isinstance(step, int):
                continue
            if isinstance(loss, int | float) and math.isfinite(loss):
                found.append((step, float(loss)))
        return found


def checkpoint_named(name: str) -> str | Path:
    """The folder of the checkpoint RUN@STEP; any other name of a model as it is.

    Raises UserError for a folder that does not exist, and for a step that the run did not keep.
    """
    match = re.fullmatch(r"(.+)@(\d+)", name)
    if match is None or Path(name).exists():
        return name
    if not Path(match[1]).is_dir():
        raise UserError(f"{name}: expected the folder of a run before @, got none at {match[1]}; try another path")
    return RunCheckpoints(Path(match[1])).place(int(match[2]))


def _checkpoint(folder: Path) -> Path | None:
    """The checkpoint of a run that a folder names; None if it names none."""
    try:
        found = model_folder(folder)
    except UserError:
        return None
    return found if STEP.fullmatch(found.name) else None


def _score(event: Mapping[str, object]) -> float | None:
    """The first figure of an evaluation that is a number."""
    scores = event.get("scores")
    values = (
        [score.get("value") for score in scores.values() if isinstance(score, dict)] if isinstance(scores, dict) else []
    )
    return next((float(value) for value in values if isinstance(value, int | float) and math.isfinite(value)), None)
