"""The log of a run as it grows, and its curves, thinned to what a page can draw. Imports no torch."""

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from pydantic import JsonValue

from clearhead.errors import UserError, reason
from clearhead.json_text import JsonObject, parse
from clearhead.recipe.places import METRICS

COLUMNS = ("step", "loss", "lr", "grad_norm", "n_tokens", "seconds", "progress")
"""The figures of an update that are kept, NaN where the log has none."""


@dataclass
class History:
    """What a log says of its run so far."""

    columns: dict[str, "array[float]"] = field(default_factory=lambda: {name: array("d") for name in (*COLUMNS, "own")})
    """A value for each update, by name. `own` is the time of the update, NaN if something else ran before it."""
    epoch: int = 0
    evaluations: list[JsonObject] = field(default_factory=list)
    saved: list[int] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    """The steps of checkpoints, and of updates that were skipped."""
    begun: list[JsonObject] = field(default_factory=list)
    """The event at the start of the run, and that of each resumption."""
    since: int = 0
    """The number of updates before the last resumption."""
    ended: JsonObject | None = None
    """The event at the end of the run, unless it was resumed since."""
    problem: str = ""
    """The first line that is no event."""
    last: str = ""
    """The kind of the last event."""

    @property
    def n_steps(self) -> int:
        """The number of updates in the log."""
        return len(self.columns["step"])

    def add(self, event: Mapping[str, JsonValue]) -> None:
        """Adds an event."""
        kind, step = event.get("kind"), event.get("step")
        if not isinstance(step, int):
            return
        match kind:
            case "stepped":
                self._step(event)
            case "evaluated":
                self.evaluations.append(dict(event))
            case "saved":
                self.saved.append(step)
            case "skipped":
                self.skipped.append(step)
            case "started":
                self.begun.append(dict(event))
                self.since, self.ended = self.n_steps, None
            case "ended":
                self.ended = dict(event)
            case _:
                pass
        self.last = str(kind)

    def _step(self, event: Mapping[str, JsonValue]) -> None:
        before = self.columns["seconds"][-1] if self.last == "stepped" else math.nan
        for name in COLUMNS:
            value = event.get(name)
            self.columns[name].append(float(value) if isinstance(value, int | float) else math.nan)
        self.columns["own"].append(self.columns["seconds"][-1] - before)
        epoch = event.get("epoch")
        self.epoch = epoch if isinstance(epoch, int) else self.epoch


class RunLog:
    """The log of a run. Each call of `read` reads its new lines.

    A last line that is not whole waits for its rest. A log that was written anew, as `resume` does to drop what an
    interrupted attempt wrote after its checkpoint, is read again from its beginning.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / METRICS
        self.history = History()
        self.n_read = self.n_lines = 0
        self.identity: tuple[int, int] | None = None
        self.written = 0.0
        """When it was last written, as the file system says."""

    @property
    def version(self) -> str:
        """Another text after each change."""
        return f"{self.identity}:{self.n_read}:{self.history.problem}"

    def read(self) -> History:
        """Reads the new lines. The history reports a log that cannot be read as its problem."""
        try:
            found = self.path.stat()
            if (found.st_dev, found.st_ino) != self.identity or found.st_size < self.n_read:
                self.history, self.n_read, self.n_lines = History(), 0, 0
                self.identity = found.st_dev, found.st_ino
            self.written = found.st_mtime
            if found.st_size > self.n_read:
                with self.path.open("rb") as file:
                    file.seek(self.n_read)
                    self._add(file.read())
        except FileNotFoundError:
            self.history, self.n_read, self.n_lines, self.identity = History(), 0, 0, None
        except OSError as error:
            self.history.problem = f"{self.path}: {reason(error)}"
        return self.history

    def _add(self, content: bytes) -> None:
        whole, ends, _ = content.rpartition(b"\n")
        self.n_read += len(whole) + len(ends)
        for line in whole.split(b"\n") if ends else ():
            self.n_lines += 1
            try:
                event = parse(line, f"{self.path}:{self.n_lines}", numbered=False)
                if isinstance(event, dict):
                    self.history.add(event)
            except UserError as error:
                self.history.problem = self.history.problem or str(error)


MOST = 400
"""Points of a curve at most; a point of a longer log is the mean of consecutive updates."""
KEPT = 0.9
"""What a smoothed value keeps of the point before."""
RECENT = 10.0
"""Seconds over which the present speed is a mean."""


def curves_of(history: History) -> JsonObject:
    """Step, loss, smoothed loss, learning rate, gradient norm and speed of at most MOST points."""
    columns = {name: np.array(values) for name, values in history.columns.items()}
    n = history.n_steps
    edges = np.unique(np.linspace(0, n, min(n, MOST) + 1).astype(np.int64))
    starts, stops = edges[:-1], edges[1:]
    loss = _means(columns["loss"], starts)
    timed = np.isfinite(columns["own"]) & (columns["own"] >= 0)
    tokens = _sums(np.where(timed, columns["n_tokens"], 0.0), starts)
    seconds = _sums(np.where(timed, columns["own"], 0.0), starts)
    with np.errstate(invalid="ignore", divide="ignore"):
        speed = tokens / seconds
    return {
        "step": [int(step) for step in columns["step"][stops - 1]] if n else [],
        "loss": _listed(loss),
        "smooth": _listed(_smoothed(loss)),
        "lr": _listed(columns["lr"][stops - 1] if n else loss),
        "grad_norm": _listed(_means(columns["grad_norm"], starts)),
        "speed": _listed(speed),
    }


def present(history: History) -> JsonObject:
    """The figures of the last update: step, epoch, loss, rate, speed, time so far and time left."""
    if not history.n_steps:
        return {}
    columns = history.columns
    at = {name: values[-1] for name, values in columns.items()}
    return {
        "step": int(at["step"]),
        "epoch": history.epoch + 1,
        "loss": _number(_smoothed(np.array(columns["loss"][-MOST:]))[-1]),
        "lr": _number(at["lr"]),
        "progress": _number(at["progress"]),
        "seconds": _number(at["seconds"]),
        "speed": _number(_speed(history)),
        "left": _number(_left(history)),
    }


def _speed(history: History) -> float:
    """Tokens a second over the last RECENT seconds of updates."""
    tokens = seconds = 0.0
    for own, n in zip(reversed(history.columns["own"]), reversed(history.columns["n_tokens"]), strict=True):
        if math.isfinite(own) and own >= 0:
            tokens, seconds = tokens + n, seconds + own
        if seconds >= RECENT:
            break
    return tokens / seconds if seconds else math.nan


def _left(history: History) -> float:
    """Seconds left at the pace since the run went on for the last time: it may have changed the machine."""
    seconds, progress = history.columns["seconds"], history.columns["progress"]
    first = min(history.since, history.n_steps - 1)
    spent, done = seconds[-1] - seconds[first], progress[-1] - progress[first]
    if not (spent > 0 and done > 0):
        spent, done = seconds[-1], progress[-1]
    return spent / done * (1 - progress[-1]) if done > 0 else math.nan


def _means(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    finite = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return _sums(np.where(finite, values, 0.0), starts) / _sums(finite.astype(float), starts)


def _sums(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    return np.add.reduceat(values, starts) if len(starts) else np.empty(0)


def _smoothed(values: np.ndarray) -> np.ndarray:
    """The exponential mean, corrected for its start at 0. Skips values that are not finite."""
    found, total, weight = np.full(len(values), math.nan), 0.0, 0.0
    for i, value in enumerate(values):
        if math.isfinite(value):
            total, weight = KEPT * total + (1 - KEPT) * value, KEPT * weight + 1 - KEPT
            found[i] = total / weight
    return found


def _listed(values: np.ndarray) -> list[JsonValue]:
    return [_number(value) for value in values.tolist()]


def _number(value: float) -> float | None:
    """A number of six digits; None for NaN and infinity, which JSON does not have."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
