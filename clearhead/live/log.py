"""Reads the log of a run as it grows. Imports no torch."""

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from clearhead.errors import UserError, reason
from clearhead.json_text import JsonObject, parse
from clearhead.storage.run_files import METRICS

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
    """The log of a run, of which each call of `read` reads what is new.

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
