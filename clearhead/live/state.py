"""Everything that the page of a run shows, as JSON. Imports no torch."""

import math
import os
import re
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Literal

from pydantic import JsonValue

from clearhead.errors import UserError, pasted
from clearhead.json_text import JsonObject, parse
from clearhead.live.log import MOST, History, RunLog, curves_of, present
from clearhead.recipe.places import OWNER, RECIPE

Kind = Literal["preparing", "running", "paused", "finished", "stopped"]
Writer = Literal["alive", "paused", "none", "unknown"]
FRESH, FRESH_ELSEWHERE = 20.0, 600.0
"""Seconds since the last line of a log within which its run goes on: where nothing says who writes to it, and where a
process of another machine does."""
PROCESS = re.compile(r"process (\d+) on (.+)")


@dataclass(frozen=True)
class Status:
    """What a run is doing, in a word and in a sentence."""

    kind: Kind
    text: str


def status_of(folder: Path, history: History, written: float) -> Status:
    """The status of the run in a folder, whose log was last written at the time `written`."""
    writer, place = writer_of(folder, written), pasted(folder)
    go_on = f"clearhead resume {place} goes on with it"
    ended = history.ended
    if ended is not None:
        step = ended.get("step")
        steps = f"{step:,}" if isinstance(step, int) else "?"
        if ended.get("signal") is not None:
            return Status("stopped", f"by a signal after step {steps}; {go_on}")
        still = "; its process is still at work, such as judging the best model" if writer == "alive" else ""
        why = "" if ended.get("reason") == "finished" else f"{ended.get('reason')}, "
        return Status("finished", f"{why}after step {steps}{still}")
    if writer == "none":
        where = "before its first step" if not history.begun else "without a last word, as after an error or a kill"
        return Status("stopped", f"its process ended {where}; {go_on}")
    if writer == "paused":
        return Status("paused", "its process is suspended, as by Ctrl-Z; fg in its terminal lets it go on")
    if not history.begun:
        return Status("preparing", "reading and encoding the data")
    return Status("running", "")


def writer_of(folder: Path, written: float) -> Writer:
    """The process that writes to a folder, by the file in which it names itself while it holds the folder's lock."""
    times = [written]
    try:
        named = PROCESS.match((folder / OWNER).read_text(encoding="utf-8"))
        times.append((folder / OWNER).stat().st_mtime)
    except (OSError, UnicodeDecodeError):
        named = None
    if named is not None and named[2].strip() == socket.gethostname() and sys.platform != "win32":
        return _process(int(named[1]))
    age = min(abs(time.time() - at) for at in times)  # A clock may have gone back since.
    return "unknown" if age < (FRESH if named is None else FRESH_ELSEWHERE) else "none"


def _process(number: int) -> Writer:
    """A process of this machine. Only Linux says whether it is suspended."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return "none"
    except PermissionError:
        pass
    try:
        state = Path(f"/proc/{number}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return "alive"
    return "paused" if state[:1] in (["T"], ["t"]) else "none" if state[:1] == ["Z"] else "alive"


N_SAMPLES = 12
"""Samples on the page, and the most characters of each text."""
N_CHARACTERS = 2000


class Watched:
    """Reads the state of a run from its folder. Safe for several threads."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log, self.lock = folder, RunLog(folder), Lock()
        self.asked, self.told = -math.inf, ""
        """When a page last asked, and the version of the state that it has."""

    def state(self, seen: str = "") -> JsonObject | None:
        """The state; None if its version is the one that the page has seen."""
        with self.lock:
            history = self.log.read()
            status = status_of(self.folder, history, self.log.written)
            version = f"{self.log.version}:{status.kind}:{status.text}"
            self.asked, self.told = time.monotonic(), version
            if version == seen:
                return None
            return {"version": version, **self._all(history, status)}

    def is_told(self) -> bool:
        """Returns True if a page that still asks has the newest state, or if no page asks."""
        if time.monotonic() - self.asked > 2 * MOST_PAUSE:
            return True
        with self.lock:
            status = status_of(self.folder, self.log.read(), self.log.written)
            return self.told == f"{self.log.version}:{status.kind}:{status.text}"

    def _all(self, history: History, status: Status) -> JsonObject:
        recipe = _recipe(self.folder)
        age = max(0.0, time.time() - self.log.written) if self.log.written else None
        return {
            "name": self.folder.name or str(self.folder),
            "folder": str(self.folder),
            "status": status.kind,
            "text": status.text,
            "age": age,
            "problem": history.problem,
            "now": present(history) | ({"seconds": history.ended.get("seconds")} if history.ended else {}),
            "limit": _limit(recipe),
            "unit": str(history.begun[-1].get("unit", "tokens")) if history.begun else "tokens",
            "curves": curves_of(history),
            **_judged(history),
            "recipe": [[name, value] for name, value in _in_short(recipe, history)],
            "whole": recipe,
            "events": [*_events(history)],
        }


MOST_PAUSE = 2.0
"""Seconds between two requests of a page while its run is active."""


def _judged(history: History) -> JsonObject:
    """The evaluations, at most MOST of them with the best, and the newest samples."""
    stride = math.ceil(len(history.evaluations) / MOST) or 1
    last = len(history.evaluations) - 1
    rows: list[JsonValue] = []
    for i, one in enumerate(history.evaluations):
        if i % stride == 0 or i == last or one.get("is_best"):
            scores = one.get("scores")
            values = scores if isinstance(scores, dict) else {}
            found: JsonObject = {name: value.get("value") for name, value in values.items() if isinstance(value, dict)}
            rows.append({"step": one["step"], "scores": found, "loss": one.get("loss"), "best": one.get("is_best")})
    newest = history.evaluations[-1] if history.evaluations else {}
    samples = newest.get("samples")
    shown: list[JsonValue] = [
        {name: str(text)[:N_CHARACTERS] for name, text in sample.items()}
        for sample in (samples if isinstance(samples, list) else [])[:N_SAMPLES]
        if isinstance(sample, dict)
    ]
    return {"evaluations": rows, "samples": shown, "sampled": newest.get("step")}


def _events(history: History) -> Iterator[str]:
    """What else happened, the newest first."""
    if history.saved:
        yield f"checkpoint saved at step {history.saved[-1]:,}, the last of {len(history.saved):,}"
    if history.skipped:
        yield f"{len(history.skipped):,} updates left out, the last at step {history.skipped[-1]:,}: no finite gradient"
    for one in reversed(history.begun):
        step, changes = one.get("step"), one.get("changes")
        if isinstance(step, int) and step > 0:
            told = [
                f"training.{name}: {' to '.join(map(str, pair)) if isinstance(pair, list) else pair}"
                for name, pair in (changes.items() if isinstance(changes, dict) else ())
            ]
            yield f"resumed after step {step:,}" + (f" with {', '.join(told)}" if told else "")


# --- the recipe in short ------------------------------------------------------------------------------------------


def _recipe(folder: Path) -> JsonObject:
    """The recipe that the run wrote when it began; empty if it has not yet, or if it cannot be read."""
    try:
        found = parse((folder / RECIPE).read_bytes(), RECIPE)
    except (OSError, UserError):
        return {}
    return found if isinstance(found, dict) else {}


def _in_short(recipe: JsonObject, history: History) -> Iterator[tuple[str, str]]:
    """The facts that matter most, each with its name."""
    begun = history.begun[-1] if history.begun else {}
    model, training, data = (_table(recipe, name) for name in ("model", "training", "data"))
    if recipe:
        yield "task", str(recipe.get("task"))
        yield "model", f"from {model['start']}" if model.get("start") else str(model.get("preset"))
    if isinstance(n := begun.get("n_parameters"), int):
        trained = begun.get("n_trained")
        part = f", {trained:,} of them trained" if isinstance(trained, int) and trained < n else ""
        yield "parameters", f"{n:,}{part}"
    for split in ("train", "valid", "test"):
        if names := " ".join(_files(_table(data, split))):
            yield f"data, {split}", names
    if training:
        optimizer, schedule = _table(training, "optimizer"), _table(training, "schedule")
        size = recipe.get("batch_size")
        several = f", {n} batches an update" if (n := training.get("accumulate")) not in (1, None) else ""
        yield "batch", (f"{size} examples" if size else f"{training.get('max_tokens')} tokens at most") + several
        yield "optimizer", f"{optimizer.get('kind')}, learning rate {optimizer.get('lr')}"
        yield "schedule", f"{schedule.get('kind')}, warm-up of {schedule.get('warmup')} steps"
        yield "limit", " or ".join(f"{training[name]} {name}" for name in LIMITS if training.get(name)) or "none"
        yield "seed", str(training.get("seed"))
    if begun:
        if evaluates := begun.get("evaluates"):
            yield "evaluations", f"of {evaluates}, always the same"
        yield "computes", f"{begun.get('precision')} on {begun.get('device')}"


LIMITS = ("steps", "epochs", "minutes")


def _limit(recipe: JsonObject) -> int | None:
    """The number of updates that the recipe allows."""
    steps = _table(recipe, "training").get("steps")
    return steps if isinstance(steps, int) else None


def _table(table: Mapping[str, JsonValue], name: str) -> JsonObject:
    found = table.get(name)
    return found if isinstance(found, dict) else {}


def _files(source: JsonValue) -> Iterator[str]:
    """The names of the files of a source, without their folders."""
    if isinstance(source, dict):
        sides = () if source.get("kind") in ("table", "dataset") else ("source", "target")  # Columns there.
        for name in ("path", "paths", *sides, "images", "labels", "name"):
            yield from _files(source.get(name))
        for one in _table(source, "to").values():
            yield from _files(one)
    elif isinstance(source, list):
        for one in source[:4]:
            yield from _files(one)
        if len(source) > 4:
            yield "…"
    elif isinstance(source, str):
        yield Path(source).name
