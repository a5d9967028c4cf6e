"""The log of a run: every event as a line of JSON, and its reader."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from clearhead.errors import UserError, reason
from clearhead.json_text import JsonObject
from clearhead.recipe.places import METRICS
from clearhead.storage.disk import replace_file, written
from clearhead.training.events import Evaluated, Event, Saved, Started

_RAW = "_raw"


class MetricsLog:
    """`folder/metrics.jsonl`: every event as one JSON object with its kind, its step and its fields.

    NaN and infinity are null beside a `…_raw` that says which. It keeps the scores and samples of an evaluation,
    not all outputs. Each line has reached the operating system when the call returns, and the disk once a
    checkpoint is. A resumed run first drops what an interrupted attempt wrote after the checkpoint, so that
    the file reads as one run. Raises UserError if the disk is full or the file is another run's.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / METRICS

    def __call__(self, event: Event) -> None:
        """Append one event."""
        line = json.dumps(_fields(event), ensure_ascii=False, allow_nan=False) + "\n"
        with written(self.path):
            if isinstance(event, Started):
                self._begin(event.step)
            with self.path.open("ab") as file:
                file.write(line.encode("utf-8", "backslashreplace"))  # A lone surrogate: JSON's own escape.
                if isinstance(event, Saved):
                    file.flush()
                    os.fsync(file.fileno())

    def _begin(self, step: int) -> None:
        """Removes the lines after `step`, in one atomic replacement of the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        content = self.path.read_bytes() if self.path.exists() else b""
        if step == 0 and content:
            raise UserError(f"{self.path}: expected no log yet, got another run's; try a new folder or resume")
        kept = b"".join(raw + b"\n" for raw, at, _ in _parse(self.path, content) if at <= step)
        if kept != content:
            replace_file(self.path, kept)


def read_metrics(folder: Path) -> list[JsonObject]:
    """The events that MetricsLog wrote, with NaN and infinity restored. Skips a line that a crash cut off.

    Raises UserError for other damage.
    """
    path = folder / METRICS
    try:
        return [fields for _, _, fields in _parse(path, path.read_bytes())]
    except OSError as error:
        raise UserError(f"{path}: expected a log, got {reason(error)}; try the folder of a run") from error


def _fields(event: Event) -> JsonObject:
    fields: JsonObject = {"kind": type(event).__name__.lower()} | vars(event)
    if isinstance(event, Evaluated):
        del fields["evaluation"]
        scores = event.evaluation.scores
        fields["scores"] = {s.name: _finite({"value": s.value, "signature": s.signature}) for s in scores}
        if not math.isnan(event.evaluation.loss):  # Of a task that has none.
            fields["loss"] = event.evaluation.loss
        fields["samples"] = [dict(vars(sample)) for sample in event.evaluation.samples]
    if isinstance(event, Started):
        options = event.performance_options
        del fields["performance_options"]
        fields["levers"] = {option.name: {"value": option.value, "why": option.why} for option in options}
    if isinstance(event, Saved):
        fields["folder"] = event.folder.name  # The run may move.
    return _finite(fields)


def _finite(fields: Mapping[str, JsonValue]) -> JsonObject:
    odd = {name: v for name, v in fields.items() if isinstance(v, float) and not math.isfinite(v)}
    return {**fields, **dict.fromkeys(odd), **{name + _RAW: str(v) for name, v in odd.items()}}


def _restored(fields: JsonObject) -> JsonObject:
    odd = {name.removesuffix(_RAW): float(str(v)) for name, v in fields.items() if name.endswith(_RAW)}
    return {name: odd.get(name, v) for name, v in fields.items() if not name.endswith(_RAW)}


def _parse(path: Path, content: bytes) -> list[tuple[bytes, int, JsonObject]]:
    """The bytes, the step and the fields of each line."""
    lines = content.split(b"\n")
    parsed: list[tuple[bytes, int, JsonObject]] = []
    for number, raw in enumerate(lines, start=1):
        try:
            fields: JsonValue = json.loads(raw, object_hook=_restored)
        except (ValueError, RecursionError):
            fields = None
        if isinstance(fields, dict) and isinstance(step := fields.get("step"), int):
            parsed.append((raw, step, fields))
        elif number < len(lines):  # After the last line's end: nothing, or what a crash cut off.
            found = repr(raw.decode(errors="replace")[:40])
            raise UserError(f"{path}:{number}: expected an event as JSON, got {found}; try without this line")
    return parsed
