"""`python -m benchmarks.streaming`: memory and time to begin with a large text, its ids in memory and on disk."""

import json
import random
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from benchmarks.entry import run_command
from benchmarks.figures import Figure, show, within
from clearhead.runs import start
from clearhead.tasks.registry import validate
from clearhead.training.events import Stepped
from clearhead.training.train import train

ABOVE = 100
"""MB above the same run on a small text, at most: what a run takes that reads from disk, whatever the text's size."""
SMALL = 1
VOCABULARY = 20_000
STEPS = 20

app = App(name="python -m benchmarks.streaming", help="A text larger than what the process may hold.")


def write_text(path: Path, megabytes: int) -> Path:
    """Words by Zipf's law, twelve a line."""
    draw = random.Random(0)
    letters = "etaoinshrdlcumwfgypbvk"
    words = ["".join(draw.choices(letters, k=draw.randint(1, 9))) for _ in range(VOCABULARY)]
    weights = [1 / rank for rank in range(1, VOCABULARY + 1)]
    with path.open("w", encoding="ascii") as file:
        while file.tell() < megabytes * 1e6:
            drawn = draw.choices(words, weights, k=120_000)
            file.write("".join(" ".join(drawn[i : i + 12]) + "\n" for i in range(0, len(drawn), 12)))
    return path


def begun_and_trained(text: Path, storage: str) -> dict[str, Any]:
    """A run of a small language model in this process: its peak, the seconds to its first step, and its losses."""
    tables = {
        "task": "lm",
        "data": {
            "train": {"kind": "text", "paths": [str(text)]},
            "held_out": 0.1 / (text.stat().st_size / 1e6),
            "storage": storage,
            "cache": str(text.parent / "cache"),
        },
        "tokenizer": {"kind": "byte_bpe", "vocab_size": 1000},
        "model": {"preset": "nano"},
        "training": {"steps": STEPS, "precision": "fp32", "matmul_precision": "highest", "threads": 1, "device": "cpu"},
    }
    began = time.perf_counter()
    run, _ = start(validate(tables, where="streaming"), text.parent / f"run-{time.time_ns()}")
    seconds = time.perf_counter() - began
    losses = [event.loss.hex() for event in train(run) if isinstance(event, Stepped)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return {"peak": peak, "seconds": seconds, "losses": losses}


def measured(text: Path, storage: str) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.streaming", "one", str(text), storage]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@app.command(show=False)
def one(text: Path, storage: str) -> None:
    """Print the figures of one run."""
    print(json.dumps(begun_and_trained(text, storage)))


@app.default
def streaming(*, megabytes: int = 200, quick: Annotated[bool, Parameter(negative="")] = False) -> None:
    """A byte-level tokenizer trained, the text encoded, and 20 steps of a small language model; on one thread. Linux.

    Parameters
    ----------
    megabytes: Size of the text.
    quick: 4 MB, to see that everything works; its figures mean nothing.
    """

    def measure(scratch: Path) -> None:
        small = measured(write_text(scratch / "small.txt", SMALL), "memory")
        print(f"{SMALL} MB: peak {small['peak']:,.0f} MB")
        size = 4 if quick else megabytes
        text = write_text(scratch / "large.txt", size)
        found: dict[str, dict[str, Any]] = {}
        for what, storage in {"memory": "memory", "disk": "disk", "disk, again": "disk"}.items():
            found[what] = measured(text, storage)
            above = found[what]["peak"] - small["peak"]
            print(f"{size} MB, {what}: {above:,.0f} MB above that; {found[what]['seconds']:.1f} s to the first step")
        if len({tuple(one["losses"]) for one in found.values()}) != 1:
            sys.exit("error: the losses differ")
        print(f"all {STEPS} losses are equal to the bit")
        if not quick:
            figures = [
                Figure(f"{what}: MB above the small text's", found[what]["peak"] - small["peak"], ABOVE, at_most=True)
                for what in ("disk", "disk, again")
            ]
            show(f"{size} MB of text", figures)

    within(measure)


if __name__ == "__main__":
    run_command(app)
