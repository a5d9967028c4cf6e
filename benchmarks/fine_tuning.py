"""`python -m benchmarks.fine_tuning`: our fine-tuning of a checkpoint against the reference library's Trainer."""

import json as json_module
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Annotated

from cyclopts import App, Parameter

from benchmarks.contestants.tuner import OURS, PEER, Assignment, Job, Precision, Turn
from benchmarks.entry import run_command
from benchmarks.racing.lines import Line
from benchmarks.racing.machine import Machine, is_bf16_slow
from benchmarks.racing.processes import Process, in_turn, started
from clearhead.errors import UserError

app = App(name="python -m benchmarks.fine_tuning", help="Fine-tuning against the reference library, interleaved.")
JOBS: dict[Job, str] = {"ewt": "parts of speech, UD English EWT", "sst2": "sentiment, SST-2"}
N_WARM_UP = 4
FLOOR, REACH = 1.5, 2.5


class Worker(Process):
    """A contestant's process."""

    def __init__(self, assignment: Assignment) -> None:
        super().__init__(assignment.kind, "benchmarks.contestants.tuner", assignment.model_dump_json())
        self.kind, self.n_weights = assignment.kind, int(self.answer)

    def turn(self, n_updates: int) -> Turn:
        return Turn.model_validate_json(self.ask(str(n_updates)))


def race(assignments: Sequence[Assignment], *, rounds: int, updates: int) -> dict[str, list[Turn]]:
    """The turns of each contestant, who take them one after another; who begins changes every round."""
    with started(Worker, assignments) as running:
        for worker in running:
            worker.turn(N_WARM_UP)
        turns: dict[str, list[Turn]] = {worker.kind: [] for worker in running}
        for i in range(rounds):
            for worker in in_turn(running, i):
                turns[worker.kind].append(worker.turn(updates))
            rates = ", ".join(f"{kind} {rate(t[-1]):,.0f}" for kind, t in turns.items())
            print(f"round {i + 1} of {rounds}: {rates} tokens/s", file=sys.stderr)
        return turns


def rate(turn: Turn) -> float:
    """Tokens a second, without padding."""
    return turn.n_tokens / turn.seconds


def line(job: Job, turns: dict[str, list[Turn]]) -> Line:
    """The row of the page."""
    ours, theirs = ([rate(turn) for turn in turns[kind]] for kind in (OURS, PEER))
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    ratio = median(ours) / median(theirs)
    return Line(what=f"fine-tune {job}", peer=PEER, ratio=ratio, low=min(ratios), high=max(ratios))


def table(job: Job, turns: dict[str, list[Turn]]) -> str:
    """Medians over the rounds, and our ratio."""
    each = {kind: [rate(turn) for turn in found] for kind, found in turns.items()}
    by_cpu = {kind: median(t.n_tokens / t.cpu_seconds for t in found) for kind, found in turns.items()}
    ratios = [a / b for a, b in zip(each[OURS], each[PEER], strict=True)]
    rows = [
        f"| {kind} | {median(rates):,.0f} | {min(rates):,.0f} to {max(rates):,.0f} | {by_cpu[kind]:,.0f}"
        f" | {sum(t.n_tokens for t in turns[kind]) / sum(t.n_examples for t in turns[kind]):.1f}"
        f" | {turns[kind][-1].loss:.3f} |"
        for kind, rates in each.items()
    ]
    title = (
        f"**{JOBS[job]}**: ratio **{median(each[OURS]) / median(each[PEER]):.2f}**, rounds {min(ratios):.2f} to"
        f" {max(ratios):.2f}, by CPU time {by_cpu[OURS] / by_cpu[PEER]:.2f}; floor {FLOOR}, reach {REACH}."
    )
    heads = "| | tokens/s | slowest to fastest round | a CPU-second | tokens an example | last loss |"
    return "\n".join([title, "", heads, "|---|---:|---:|---:|---:|---:|", *rows])


@app.default
def main(
    *jobs: Job,
    data: Path = Path("../shared/data"),
    checkpoint: Path | None = None,
    threads: int | None = None,
    rounds: int = 3,
    updates: int = 50,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Race both on each job; about 8 minutes on two cores that have nothing else to do.

    Both train the checkpoint in bf16, or in fp32 where that is quicker, on batches of 32 examples of about one length,
    with AdamW, each in its own loop.

    Args:
        jobs: ewt (a tag a word) and sst2 (a label a sentence); both by default.
        data: Folder with ud_english_ewt and sst2.
        checkpoint: What is fine-tuned (default: checkpoints/all-MiniLM-L6-v2-fp16 in that folder).
        threads: CPU threads of each contestant (default: PyTorch's).
        rounds: Turns of each contestant.
        updates: Updates of a turn; the Trainer's lengths fall over 50, so fewer are not those of the data.
        json: Print the ratios as one JSON object on the last line.
    """
    if missing := [name for name in ("transformers", "accelerate") if find_spec(name) is None]:
        raise UserError(f"fine_tuning: expected {' and '.join(missing)}, got none; pip install {' '.join(missing)}")
    data = data.absolute()
    start = checkpoint.absolute() if checkpoint else data / "checkpoints" / "all-MiniLM-L6-v2-fp16"
    machine = Machine.now(threads)
    lines: list[Line] = []
    precision: Precision = "fp32" if is_bf16_slow() else "bf16"
    for job in jobs or JOBS:
        both = [
            Assignment(kind=k, job=job, data=data, checkpoint=start, threads=threads, precision=precision)
            for k in (OURS, PEER)
        ]
        turns = race(both, rounds=rounds, updates=updates)
        lines.append(line(job, turns))
        print(table(job, turns), end="\n\n")
    print(f"{rounds} rounds of {updates} updates in {precision}. {machine}")
    if json:
        print(json_module.dumps({"lines": [one.model_dump() for one in lines]}))


if __name__ == "__main__":
    run_command(app)
