"""`python -m benchmarks run NAME`: our training step against the well-known library's, interleaved."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from benchmarks.machine import Machine
from benchmarks.race import Rounds, race
from benchmarks.report import Report
from benchmarks.worker import OURS, PEERS, Assignment
from benchmarks.workload import Workload
from clearhead.errors import UserError

Flag = Annotated[bool, Parameter(negative="")]

app = App(name="python -m benchmarks", help="Speed against the well-known library, in one interleaved run.")


@dataclass(frozen=True)
class Benchmark:
    """What is raced, and what we promise."""

    workload: Workload
    goal: float
    """Least ratio to the faster peer."""


BENCHMARKS = {
    "encdec-small": Benchmark(Workload(), goal=1.35),
    "encdec-base": Benchmark(Workload(d_model=512, n_layers=6, n_heads=8, d_ff=2048), goal=1.3),
}
FULL = Rounds(n_rounds=7, n_steps=6, n_warm_up=4)
QUICK = Rounds(n_rounds=2, n_steps=1, n_warm_up=1)
QUICK_CHANGES = {"max_tokens": 256, "n_pairs": 200, "n_layers": 1}


@app.command
def run(
    name: str,
    *,
    quick: Flag = False,
    json: Flag = False,
    threads: int | None = None,
    rounds: int | None = None,
    markdown: Path | None = None,
) -> None:
    """Race our training step against the peers; 3 to 5 minutes on two cores that have nothing else to do.

    Parameters
    ----------
    name: encdec-small or encdec-base.
    quick: A tiny network for seconds, to see that everything works; its figures mean nothing.
    json: Print the figures as one JSON object on the last line.
    threads: CPU threads of every contestant (default: PyTorch's).
    rounds: Turns of each contestant.
    markdown: Write the table here too.
    """
    if name not in BENCHMARKS:
        raise UserError(f"{name}: expected one of {', '.join(BENCHMARKS)}; try {next(iter(BENCHMARKS))}")
    chosen, length = BENCHMARKS[name], QUICK if quick else FULL
    workload = chosen.workload.model_copy(update=QUICK_CHANGES) if quick else chosen.workload
    machine = Machine.now(threads)
    assignments = [Assignment(kind=kind, workload=workload, threads=threads) for kind in (OURS, *PEERS)]
    length = Rounds(rounds or length.n_rounds, length.n_steps, length.n_warm_up)
    lanes = race(assignments, length)
    report = Report.of(name, lanes, rounds=length, goal=chosen.goal, quick=quick, workload=workload, machine=machine)
    print(report.markdown())
    if markdown is not None:
        markdown.write_text(report.markdown() + "\n", encoding="utf-8")
    if json:
        print(report.model_dump_json())


def main() -> None:
    """Run the command line; a mistake of the user's is one line."""
    try:
        app()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
