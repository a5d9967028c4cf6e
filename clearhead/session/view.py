"""Shows a run while it trains: in a terminal as the command does, in a notebook as a picture in the cell."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Protocol

from clearhead.brief import cut
from clearhead.explorer.hosting.widget import in_notebook
from clearhead.live.state import Watched
from clearhead.progress import tell
from clearhead.tasks.floors import Floor, line_of
from clearhead.training.consumers import ProgressBar
from clearhead.training.events import Ended, Event, Started, Stepped

WIDTH, HEIGHT = 640, 160
"""Of the picture of the loss."""
N_EVALUATIONS, N_SAMPLES, LENGTH = 8, 4, 200
"""Most evaluations and samples in a cell, and most characters of a sample's text."""
PAUSE = 1.0
"""Seconds between two pictures."""


class Shown(Protocol):
    """The shown state of a run."""

    folder: Path
    report: list[str]
    remarks: list[str]

    @property
    def floors(self) -> Sequence[Floor]:
        """What simple methods score on its data."""
        ...


def viewer(run: Shown) -> Callable[[Event], None]:
    """What shows the events of a run."""
    return Cell(run) if in_notebook() and "IPython" in sys.modules else Terminal(run)


class Terminal:
    """Shows a run on standard error."""

    def __init__(self, run: Shown) -> None:
        self.run, self.bar = run, ProgressBar()

    def __call__(self, event: Event) -> None:
        """Shows one event."""
        if isinstance(event, Started):
            self.bar = ProgressBar(unit=event.unit)
            for line in self.run.report:
                tell(line)
        self.bar(event)
        if isinstance(event, Started) and self.run.floors:
            tell(f"floor on {self.run.floors[0].split} data, {line_of(self.run.floors)}")
        if isinstance(event, Ended):
            stopped = ["stopped; run.resume() goes on with it"] if event.signal is not None else []
            about = f"run.scores judges the best model, run.model uses it: {self.run.folder}"
            tell("\n".join([*stopped, *self.run.remarks, about]))


class Cell:
    """Shows a run below a notebook's cell."""

    def __init__(self, run: Shown) -> None:
        from IPython.display import HTML, display

        self.run, self.html, self.next = run, HTML, 0.0
        self.handle: Any = display(HTML(""), display_id=True)

    def __call__(self, event: Event) -> None:
        """Shows the run after an event, but not after each of many updates."""
        if isinstance(event, Stepped) and time.monotonic() < self.next:
            return
        said = "".join(f"<div>{escape(line)}</div>" for line in self.run.remarks)
        report = f"{said}<details><summary>data</summary><pre>{escape(chr(10).join(self.run.report))}</pre></details>"
        self.handle.update(self.html(html_of(self.run.folder, self.run.floors) + report))
        self.next = time.monotonic() + PAUSE


def html_of(folder: Path, floors: Sequence[Floor]) -> str:
    """The run in a folder as HTML: its loss as a picture, its newest evaluations and samples."""
    state: Any = Watched(folder).state()
    now, rows = state["now"], state["evaluations"]
    done = f", step {now['step']:,}, {now['progress']:.0%}, {now['left'] or 0:.0f} s left" if now.get("step") else ""
    parts = [f"<b>{escape(str(folder))}</b> {escape(state['status'])}{done}"]
    if state["curves"]["step"]:
        parts.append(_picture(state["curves"], rows))
    names = [*dict.fromkeys(name for row in rows for name in row["scores"])]
    some = [*rows[-N_EVALUATIONS:]]
    parts += _table(["step", *names, ""], [_evaluation(row, names) for row in some]) if some else []
    samples = state["samples"][:N_SAMPLES]
    if floors:
        parts.append(f"<div>floor: {escape(line_of(floors))}</div>")
    columns = [name for name in ("source", "output", "reference") if any(sample.get(name) for sample in samples)]
    parts += _table(columns, [[cut(sample.get(name, ""), LENGTH) for name in columns] for sample in samples])
    return "".join(parts)


def _evaluation(row: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    values = ["" if row["scores"].get(name) is None else f"{row['scores'][name]:.4g}" for name in names]
    return [f"{row['step']:,}", *values, "best" if row["best"] else ""]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The rows under the names of their columns; nothing without rows."""
    if rows:
        cells = ["".join(f"<td style='text-align:left'>{escape(cell)}</td>" for cell in row) for row in rows]
        names = "".join(f"<th style='text-align:left'>{escape(name)}</th>" for name in head)
        yield f"<table><tr>{names}</tr><tr>{'</tr><tr>'.join(cells)}</tr></table>"


def _picture(curves: Mapping[str, Any], evaluations: Sequence[Mapping[str, Any]]) -> str:
    """The smoothed loss of training as a line, and the loss of each evaluation as a dot."""
    losses = [(step, loss) for step, loss in zip(curves["step"], curves["smooth"], strict=True) if loss is not None]
    dots = [(row["step"], row["loss"]) for row in evaluations if row["loss"] is not None]
    values, last = [loss for _, loss in losses + dots], curves["step"][-1]
    low, high = min(values, default=0.0), max(values, default=1.0)

    def at(step: float, loss: float) -> tuple[str, str]:
        return f"{step / last * WIDTH:.1f}", f"{HEIGHT - (loss - low) / (high - low or 1.0) * HEIGHT:.1f}"

    line = " ".join(",".join(at(*point)) for point in losses)
    circles = "".join("<circle cx='{}' cy='{}' r='3' fill='currentColor'/>".format(*at(*dot)) for dot in dots)
    return (
        f"<div>loss {high:.3g} to {low:.3g}: training (line), validation (dots)</div>"
        f"<svg viewBox='-4 -4 {WIDTH + 8} {HEIGHT + 8}' width='{WIDTH}' role='img' aria-label='loss by step'>"
        f"<polyline points='{line}' fill='none' stroke='#1f77b4' stroke-width='1.5'/>{circles}</svg>"
    )
