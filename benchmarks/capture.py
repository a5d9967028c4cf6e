"""`python -m benchmarks.capture`: activations of a data set, written at what share of the speed of plain passes."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Annotated

import torch
from cyclopts import App, Parameter

from benchmarks.entry import run_command
from benchmarks.figures import Figure, show
from benchmarks.racing.machine import Machine
from clearhead.api import Model, load
from clearhead.capture import capture, texts_in
from clearhead.capture.passes import Plan, batches, windows
from clearhead.capture.texts import Text
from clearhead.errors import UserError
from clearhead.machine.device import keep_freed_memory
from clearhead.model import Tokens
from clearhead.model.mode import Evaluating

FLOOR = 0.8
app = App(name="python -m benchmarks.capture", help="Capture's share of the speed of plain forward passes.")


@dataclass(frozen=True)
class Job:
    """A model, its texts, and what is captured."""

    checkpoint: str
    tokenizer: str | None
    data: str
    column: str | None
    at: str

    def model(self, shared: Path, folder: Path) -> Model:
        """The checkpoint with its tokenizer."""
        shutil.copytree(shared / "checkpoints" / self.checkpoint, folder)
        if self.tokenizer is not None:
            shutil.copy(shared / "tokenizers" / self.tokenizer, folder)
        model = load(folder)
        model.network.float()
        return model


JOBS = {
    "stories15M": Job(
        "stories15M", "llama2/tokenizer.model", "tinyshakespeare/input.txt", None, "decoder.blocks.*.resid_post"
    ),
    "MiniLM": Job("all-MiniLM-L6-v2-fp16", None, "sst2/train.tsv", "0", "encoder.blocks.*.resid_post"),
}


@dataclass(frozen=True)
class Turn:
    """Seconds of one turn, of the clock and of the processor."""

    wall: float
    cpu: float


def timed(work: Callable[[], object]) -> Turn:
    """One turn."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Turn(time.perf_counter() - wall, time.process_time() - cpu)


def forward(model: Model, inputs: Sequence[list[Tokens]], *, whole: bool) -> None:
    """Plain passes over batches that are ready: to the logits, or to the last states."""
    with Evaluating(model.network), torch.inference_mode():
        for tokens in inputs:
            if whole:
                model.network(*tokens)
            else:
                model.network.states(*tokens)


def race(job: Job, model: Model, texts: Sequence[Text], folder: Path, rounds: int) -> tuple[dict[str, list[Turn]], int]:
    """The turns of each, in turn, after one that does not count; and the tokens of a turn."""
    plan = Plan.of(model, [job.at])
    encoded = [one for window in windows(plan, texts, 1 << 62) for one in window.texts]
    inputs = [plan.encoder.batch([encoded[i] for i in batch]) for batch in batches(encoded)]
    n = 0

    def captured() -> None:
        nonlocal n
        n += 1
        capture(model, texts, [job.at], folder / f"{n}")

    works: dict[str, Callable[[], object]] = {
        "forward, to the logits": lambda: forward(model, inputs, whole=True),
        "forward, to the last states": lambda: forward(model, inputs, whole=False),
        "capture": captured,
    }
    turns: dict[str, list[Turn]] = {name: [] for name in works}
    for i in range(rounds + 1):
        for name, work in works.items() if i % 2 else reversed(works.items()):
            turns[name].append(timed(work))
        shutil.rmtree(folder / f"{n}")
    return {name: one[1:] for name, one in turns.items()}, sum(one.length for one in encoded)


@app.default
def measure(*, texts: int = 2000, rounds: int = 5, only: Annotated[str | None, Parameter()] = None) -> None:
    """Write every block's residual stream of real texts, beside plain forward passes over the same batches.

    Capture reads the texts, tokenizes, computes, writes, hashes and syncs; the plain passes have their batches ready.

    Args:
        texts: Lines of tiny Shakespeare, and sentences of SST-2.
        rounds: Turns of each.
        only: One of the models.
    """
    shared = Path(os.environ.get("CLEARHEAD_SHARED_DATA", "../shared/data"))
    if not shared.is_dir():
        raise UserError(f"{shared}: expected the folder of real data, got none; set CLEARHEAD_SHARED_DATA")
    keep_freed_memory()  # As the command does.
    print(Machine.now(None))
    figures: list[Figure] = []
    for name, job in JOBS.items():
        if only not in (None, name):
            continue
        with tempfile.TemporaryDirectory() as temporary:
            model = job.model(shared, Path(temporary) / "model")
            data = [text for text in islice(texts_in(shared / job.data, text=job.column), 3 * texts) if text][:texts]
            turns, n = race(job, model, data, Path(temporary), rounds)
        for what, some in turns.items():
            wall, cpu = (median(getattr(turn, kind) for turn in some) for kind in ("wall", "cpu"))
            print(f"{name}, {what}: {n / wall:,.0f} tokens/s, {cpu / n * 1e6:.0f} CPU µs a token")
        for against in [what for what in turns if what != "capture"]:
            pairs = list(zip(turns[against], turns["capture"], strict=True))
            for kind in ("wall", "cpu"):
                share = median(getattr(plain, kind) / getattr(own, kind) for plain, own in pairs)
                figures.append(Figure(f"{name}: speed, share of {against} ({kind} time)", share, FLOOR))
    show("Capturing a data set", figures)


if __name__ == "__main__":
    run_command(app)
