"""Consumers of the events of a training run: a progress bar, a log of every event, TensorBoard.

`with ProgressBar() as bar:` … `for event in train(run): bar(event); log(event)`
"""

import math
import os
import sys
import time
import unicodedata
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, TextIO

from rich.cells import cell_len, set_cell_size
from tqdm import tqdm
from tqdm.std import EMA  # pyrefly: ignore[missing-module-attribute]

from clearhead.errors import UserError
from clearhead.storage.disk import written
from clearhead.tasks.evaluation import Sample
from clearhead.tasks.scores import Score
from clearhead.training.events import Ended, Evaluated, Event, Saved, Skipped, Started, Stepped

TENSORBOARD = "tensorboard"
N_SAMPLES = 2
"""Outputs shown at each evaluation: always of the same inputs, so that progress shows."""
PATIENCE = 3.0
"""Seconds that an evaluation takes before its bar shows."""
LINE_EVERY = 10.0
"""Seconds of training between lines if the stream is no terminal."""


class ProgressBar(AbstractContextManager["ProgressBar"]):
    """One bar for the whole run, with results and sample outputs above it.

    If `stream` (standard error by default) is not a terminal, it prints one line about every 10 seconds and at each
    evaluation. `quiet` shows warnings only. A terminal that goes away ends the display, never the run. `unit` is what
    the task's losses are counted by.
    """

    def __init__(self, *, unit: str = "tokens", quiet: bool = False, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._live = self._stream.isatty()
        self._bar: tqdm[Any] | None = None
        self._pace = _Pace(unit)
        self._last_line = -math.inf

    def __call__(self, event: Event) -> None:
        """Show one event."""
        self._pace.note(event)
        try:
            self._show(event)
        except OSError:
            self._quiet = True
            if self._bar is not None:
                self._bar.disable = True

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _show(self, event: Event) -> None:
        at = f"step {event.step:,}"
        match event:
            case Skipped():
                self._write(f"warning: {at}: update left out, its gradient's norm is {event.grad_norm}")
            case _ if self._quiet:
                pass
            case Started():
                start = f"going on after {at}" if event.step else "training"
                self._write(f"{start}: {event.size}, {event.precision} on {event.device}")
                if event.evaluates:
                    self._write(f"evaluations: {event.evaluates}, always the same (training.evaluate_examples)")
                for name, change in event.changes.items():
                    old, new = change if isinstance(change, list) else (None, change)
                    self._write(f"training.{name}: {old} -> {new}")
                if self._live:
                    layout = "{percentage:3.0f}% |{bar}| {desc}"
                    self._bar = tqdm(total=1, file=self._stream, bar_format=layout, leave=False, miniters=0)
            case Stepped():
                self._advance(event)
            case Evaluated(evaluation=evaluation):
                best = ["best by its loss" if event.by_loss else "best"] if event.is_best else []
                self._write("  ".join([at, *map(figure, evaluation.scores), *best]))
                if self._live:
                    self._write(*sample_lines(evaluation.samples[:N_SAMPLES], width=_width(self._stream)))
            case Saved():
                self._write(f"{at}  saved {event.folder}")
            case Ended():
                self.__exit__()
                time = tqdm.format_interval(event.seconds)
                self._write(f"{event.reason} after {at}, {time}  {self._pace.text}".rstrip())

    def _advance(self, event: Stepped) -> None:
        left, text = self._pace.left, self._pace.text
        if self._bar is not None:
            self._bar.ncols = _width(self._stream)
            self._bar.n = min(1.0, event.progress)
            self._bar.set_description_str(f"{left}  {text}", refresh=False)
            if event.progress >= 1.0:
                self._bar.refresh()  # The last evaluation may take long, so announce it now.
            else:
                self._bar.update(0)  # Draws if the last drawing is 0.1 s old.
        elif event.seconds >= self._last_line + LINE_EVERY or event.progress >= 1.0:
            self._last_line = event.seconds
            self._write(f"step {event.step:,}  {event.progress:.0%}  {left}  {text}")

    def _write(self, *lines: str) -> None:
        for line in lines:
            tqdm.write(line, file=self._stream)
        self._stream.flush()


class EvaluationBar:
    """How far an evaluation is, once it takes more than a few seconds: told to it by `watching`.

    On a terminal a bar, elsewhere a line about every 10 seconds.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._bar: tqdm[Any] | None = None
        self._last_line = 0.0

    def __call__(self, what: str, done: int, n: int) -> None:
        """Show that `done` of `n` batches are done."""
        with suppress(OSError):  # A terminal that goes away ends no evaluation.
            if not self._stream.isatty():
                self._line(what, done, n)
                return
            if done == 0 or self._bar is None:
                layout = "  {desc} {percentage:3.0f}% |{bar}| {remaining} left"
                named = f"evaluation, {what}"
                self._bar = tqdm(total=n, desc=named, file=self._stream, bar_format=layout, leave=False, delay=PATIENCE)
            self._bar.update(done - self._bar.n)
            if done == n:
                self._bar.close()
                self._bar = None

    def _line(self, what: str, done: int, n: int) -> None:
        now = time.monotonic()
        if done == 0:
            self._last_line = now
        elif now >= self._last_line + LINE_EVERY and done < n:
            self._last_line = now
            print(f"evaluation, {what}: {done / n:.0%}", file=self._stream, flush=True)


class _Pace:
    """Loss, speed and remaining time as text, from the last updates."""

    def __init__(self, unit: str) -> None:
        self.unit, self.left, self.text = unit, "", ""
        self._tokens = self._seconds = 0.0
        self._loss = EMA(0.05)  # A mean over about twenty updates.
        self._first: Stepped | None = None
        self._before: float | None = None

    def note(self, event: Event) -> None:
        """Processes one event."""
        if not isinstance(event, Stepped):
            self._before = None  # The time until the next update is not all training.
            return
        self._first = self._first or event
        if self._before is not None:
            elapsed = max(0.0, event.seconds - self._before)
            kept = math.exp(-elapsed / 10)  # A mean over about ten seconds.
            self._tokens = kept * self._tokens + event.n_tokens
            self._seconds = kept * self._seconds + elapsed
        self._before = event.seconds
        if not math.isfinite(self._loss()):
            self._loss = EMA(self._loss.alpha)
        loss = self._loss(event.loss)
        # Time left at the pace since this process's first update: a resumed run may be on another machine.
        seconds, progress = event.seconds - self._first.seconds, event.progress - self._first.progress
        if seconds <= 0 or progress <= 0:
            seconds, progress = event.seconds, max(event.progress, 1e-9)
        left = tqdm.format_interval(seconds / progress * (1 - event.progress))
        self.left = f"{left} left" if event.progress < 1.0 else "last evaluation"
        speed = f"  {tqdm.format_sizeof(self._tokens / self._seconds)} {self.unit}/s" if self._seconds else ""
        self.text = f"loss {loss:.3f}{speed}  epoch {event.epoch + 1}  lr {event.lr:.2g}"


def figure(score: Score) -> str:
    """The score as short text. Of BLEU's signature it shows case and tokenizer, which distinguish BLEU variants."""
    name, value = score.name, score.value
    if name.startswith("chrf"):
        return f"{name.replace('chrf', 'chrF2')} {value:.1f}"
    if not name.startswith("bleu"):
        return f"{name.replace('_', ' ')} " + (f"{value:.2f}" if 0.1 <= value < 1e4 else f"{value:.3g}")
    parts = {key: text for key, _, text in (part.partition(":") for part in score.signature.split("|"))}
    cased = "cased" if parts.get("case") == "mixed" and "lowercased" not in parts else "lowercased"
    tokenizer = "moses" if "moses" in parts else parts.get("tok", "13a").removeprefix("13a")
    note = ", ".join(filter(None, (cased, tokenizer, "shorter n-grams" if parts.get("eff") == "yes" else "")))
    return f"BLEU {value:.1f}" + (f" ({note})" if score.signature else "")


def sample_lines(samples: Sequence[Sample], *, width: int) -> list[str]:
    """`source / output / reference`, a line each of at most `width` cells; control characters become U+FFFD."""
    lines: list[str] = []
    for label, text in (item for sample in samples for item in vars(sample).items()):
        words = " ".join(text.split())
        plain = "".join("\ufffd" if unicodedata.category(c) in {"Cc", "Cs"} else c for c in words)
        line = f"    {label:<9}  {plain or '(nothing)'}"
        if text or label == "output":
            lines.append(line if cell_len(line) <= width else set_cell_size(line, width - 1).rstrip() + "…")
    return lines


def _width(stream: TextIO) -> int:
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    return max(20, (columns or 80) - 1)


class TensorBoardLog(AbstractContextManager["TensorBoardLog"]):
    """`folder/tensorboard`: losses and scores as curves, samples as text. Needs the extra `clearhead[log]`."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UserError("tensorboard: expected the package, got none; try pip install 'clearhead[log]'") from None
        self.folder = folder / TENSORBOARD
        self._open = SummaryWriter
        self._writer: SummaryWriter | None = None

    def __call__(self, event: Event) -> None:
        """Write one event."""
        with written(self.folder):
            if self._writer is None:
                # Curves of an interrupted attempt end where this one goes on.
                self._writer = self._open(str(self.folder), purge_step=event.step + 1 if event.step else None)
            match event:
                case Stepped() | Skipped():
                    for name in vars(event).keys() & {"loss", "lr", "grad_norm", "n_tokens", "epoch"}:
                        self._writer.add_scalar(f"train/{name}", vars(event)[name], event.step)
                case Evaluated(evaluation=evaluation):
                    for score in evaluation.scores:
                        self._writer.add_scalar(f"valid/{score.name}", score.value, event.step)
                    text = "\n".join(sample_lines(evaluation.samples, width=1000))
                    self._writer.add_text("samples", text, event.step)
                    self._writer.flush()
                case Ended():
                    self.__exit__()
                case Started() | Saved():
                    pass

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
