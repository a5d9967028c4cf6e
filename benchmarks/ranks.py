"""`python -m benchmarks.ranks`: what several processes compute against what one does, by the product's commands.

A small translator without dropout, in float32, on gloo. Losses are compared update by update.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from benchmarks.entry import run_command

WORDS = "zero one two three four five six seven eight nine".split()
PROMISE = 1e-5
"""Largest relative difference of a loss."""
MUON_BAND = 1e-3
"""The same for Muon, whose orthogonalisation in bfloat16 makes another number of a last bit."""
EXIT_WITHIN = 60.0
RESUMED_AT = 20
"""The step after which runs go on with another number of processes."""

app = App(name="python -m benchmarks.ranks", help="Several processes against one.")


@dataclass(frozen=True)
class Row:
    """One figure, and what we promise of it."""

    what: str
    figure: float
    at_most: float
    unit: str = ""

    @property
    def is_kept(self) -> bool:
        return self.figure <= self.at_most

    def __str__(self) -> str:
        mark = "" if self.is_kept else " (MISSED)"
        return f"| {self.what} | {self.figure:.3g}{self.unit} | {self.at_most:.3g}{self.unit}{mark} |"


def write_recipe(folder: Path, steps: int) -> Path:
    """Numbers and the same numbers backwards, 400 pairs."""
    draw = random.Random(0)
    rows = [[draw.choice(WORDS) for _ in range(draw.randint(2, 12))] for _ in range(400)]
    for name, turned in (("a.en", False), ("a.de", True)):
        text = "".join(" ".join(reversed(row) if turned else row) + "\n" for row in rows)
        (folder / name).write_text(text, encoding="utf-8")
    path = folder / "small.toml"
    path.write_text(
        f"""
task = "translation"
[data]
held_out = 8
train = {{kind = "parallel", source = "a.en", target = "a.de"}}
folder = "{folder}"
[tokenizer]
kind = "words"
[model]
preset = "demo"
stacks = {{d_model = 64, n_layers = 2, n_heads = 4, d_ff = 128, dropout = 0.0}}
[training]
steps = {steps}
max_tokens = 300
save_every = {RESUMED_AT}
evaluate_every = 1000
precision = "fp32"
matmul_precision = "highest"
device = "cpu"
schedule = {{kind = "constant", warmup = 5}}
optimizer = {{kind = "adamw", lr = 0.002}}
[generation]
max_new_tokens = 16
""",
        encoding="utf-8",
    )
    return path


def command(words: Sequence[str | Path], processes: int, *options: str) -> list[str]:
    """`clearhead WORDS`, as one process or by torchrun."""
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes), *options] if processes > 1 else []
    return [sys.executable, *launcher, "-m", "clearhead", *map(str, words)]


def environment() -> Mapping[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def run(words: Sequence[str | Path], processes: int = 1) -> None:
    done = subprocess.run(command(words, processes), env=environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"error: {' '.join(map(str, words))} on {processes}: {chr(10).join(done.stderr.splitlines()[:60])}")


def losses(folder: Path) -> dict[int, float]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return {event["step"]: event["loss"] for event in map(json.loads, lines) if event["kind"] == "stepped"}


def difference(ours: Path, reference: Path, *, after: int = 0) -> float:
    """The largest relative difference of a loss; infinite where an update is missing."""
    a, b = losses(ours), losses(reference)
    if a.keys() != b.keys():
        return float("inf")
    return max(abs(a[step] - b[step]) / abs(b[step]) for step in b if step > after)


def go_on(run_folder: Path, copy: Path) -> Path:
    """The run as it was after step RESUMED_AT."""
    copy.mkdir()
    name = f"step-{RESUMED_AT:08d}"
    subprocess.run(["cp", "-r", run_folder / name, copy / name], check=True)
    subprocess.run(["cp", run_folder / "metrics.jsonl", copy], check=True)
    return copy


def compare(folder: Path, recipe: Path) -> list[Row]:
    """Two processes against one, and one run on one, two and four."""
    muon = '{"kind": "muon", "lr": 0.002}'
    exact = '{"kind": "muon", "lr": 0.002, "precision": "float32"}'
    kinds = {
        "ddp": (["--training.parallel", "ddp"], "one", PROMISE),
        "fsdp (fully_shard)": (["--training.parallel", "fsdp"], "one", PROMISE),
        "tensor parallel": (["--training.tensor_parallel", "2"], "one", PROMISE),
        "ddp, 3 batches an update": (["--training.accumulate", "3"], "accumulated", PROMISE),
        "Muon in float32, fsdp": (["--training.optimizer", exact, "--training.parallel", "fsdp"], "muon32", PROMISE),
        "Muon, fsdp": (["--training.optimizer", muon, "--training.parallel", "fsdp"], "muon", MUON_BAND),
    }
    references: dict[str, list[str]] = {
        "one": [],
        "accumulated": ["--training.accumulate", "3"],
        "muon32": ["--training.optimizer", exact],
        "muon": ["--training.optimizer", muon],
    }
    for name, changes in references.items():
        run(["train", recipe, "--out", folder / name, *changes])
    rows: list[Row] = []
    for what, (changes, reference, at_most) in kinds.items():
        ours = folder / what.replace(" ", "-").replace(",", "")
        run(["train", recipe, "--out", ours, *changes], 2)
        rows.append(Row(f"{what}: 2 processes against 1", difference(ours, folder / reference), at_most))
    for processes in (1, 4):
        ours = go_on(folder / "fsdp-(fully_shard)", folder / f"on-{processes}")
        run(["resume", ours], processes)
        worst = difference(ours, folder / "one")
        rows.append(Row(f"saved on 2 (fsdp), resumed on {processes}: against 1", worst, PROMISE))
    return rows


def kill(folder: Path, recipe: Path) -> list[Row]:
    """One of two processes killed: seconds until all are gone, and the losses of what goes on."""
    seconds = strike(folder / "killed", recipe)
    run(["resume", folder / "killed"], 2)
    strike(folder / "restarted", recipe, "--max-restarts", "1")
    reference = folder / "one"
    return [
        Row("one of 2 killed with -9: seconds until all have exited", seconds, EXIT_WITHIN, " s"),
        Row("the killed run, resumed on 2: against 1", difference(folder / "killed", reference), PROMISE),
        Row("one of 2 killed, restarted by torchrun: against 1", difference(folder / "restarted", reference), PROMISE),
    ]


def strike(ours: Path, recipe: Path, *options: str, wait: float = 0.0, victim: int = -1) -> float:
    """Kill one process of a new run `wait` seconds after its step 5; seconds until all its processes are gone."""
    words = ["train", recipe, "--out", ours, "--training.save_every", "5"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    launcher = subprocess.Popen(command(words, 2, *options), env=environment(), **quiet)
    while not (ours / "step-00000005").is_dir():
        if launcher.poll() is not None:
            sys.exit("error: the run to kill ended by itself")
        time.sleep(0.05)
    time.sleep(wait)
    children = children_of(launcher.pid)
    began = time.perf_counter()
    if children:  # Else the run is over.
        os.kill(children[victim], signal.SIGKILL)
    launcher.wait()
    while any(Path(f"/proc/{pid}").exists() for pid in children):
        time.sleep(0.05)
    return time.perf_counter() - began


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    return [int(word) for word in text.split()]


@app.default
def main(*, steps: int = 50, as_json: Annotated[bool, Parameter(name="--json", negative="")] = False) -> None:
    """Print the table; 3 minutes on two cores. Linux.

    Parameters
    ----------
    steps: Updates of every run.
    as_json: Print the figures as one JSON object on the last line.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recipe = write_recipe(folder, steps)
        rows = [*compare(folder, recipe), *kill(folder, recipe)]
    print(f"Worst relative difference of a loss over {steps} updates\n\n| what | measured | at most |\n|---|---|---|")
    print(*rows, sep="\n")
    if as_json:
        print(json.dumps({row.what: row.figure for row in rows}))
    if not all(row.is_kept for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    run_command(app)
