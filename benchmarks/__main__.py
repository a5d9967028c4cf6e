"""`python -m benchmarks run NAME`: our training step against the well-known library's, interleaved."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from benchmarks.gpt import GptWorkload
from benchmarks.machine import Machine
from benchmarks.race import Rounds, race
from benchmarks.report import Report
from benchmarks.worker import OURS, PEERS, Assignment, Kind
from benchmarks.workload import Workload
from clearhead.errors import UserError

Flag = Annotated[bool, Parameter(negative="")]

app = App(name="python -m benchmarks", help="Speed against the well-known library, in one interleaved run.")


@dataclass(frozen=True)
class Benchmark:
    """What is raced, and what we promise."""

    workload: Workload | GptWorkload
    goal: float
    """Least ratio to the faster peer."""
    peers: tuple[Kind, ...] = PEERS
    n_steps: int = 6
    """Training steps of one turn."""


LARGE = {"d_model": 768, "n_layers": 12, "n_heads": 12, "vocab_size": 50_304, "length": 512, "batch": 2}
COMPILED: tuple[Kind, ...] = ("plain bf16", "plain bf16 compiled", "transformers bf16")
BENCHMARKS = {
    "encdec-small": Benchmark(Workload(), goal=1.35),
    "encdec-base": Benchmark(Workload(d_model=512, n_layers=6, n_heads=8, d_ff=2048), goal=1.3, n_steps=3),
    "gpt-small": Benchmark(GptWorkload(), goal=1.3, peers=COMPILED, n_steps=4),
    "gpt-small-fp32": Benchmark(
        GptWorkload(precision="fp32"), goal=1.9, peers=("plain fp32", "plain fp32 compiled"), n_steps=3
    ),
    "gpt-124m": Benchmark(
        GptWorkload.model_validate(LARGE), goal=1.25, peers=("plain bf16", "transformers bf16"), n_steps=2
    ),
}
N_ROUNDS, N_WARM_UP = 7, 4
QUICK_CHANGES = {"max_tokens": 256, "n_pairs": 200, "n_layers": 1}
QUICK_GPT = {"d_model": 64, "n_heads": 2, "vocab_size": 200, "length": 32, "batch": 2, "n_layers": 1, "n_batches": 8}


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
    name: encdec-small, encdec-base, gpt-small, gpt-small-fp32 or gpt-124m.
    quick: A tiny network for seconds, to see that everything works; its figures mean nothing.
    json: Print the figures as one JSON object on the last line.
    threads: CPU threads of every contestant (default: PyTorch's).
    rounds: Turns of each contestant.
    markdown: Write the table here too.
    """
    if name not in BENCHMARKS:
        raise UserError(f"{name}: expected one of {', '.join(BENCHMARKS)}; try {next(iter(BENCHMARKS))}")
    chosen, workload = BENCHMARKS[name], BENCHMARKS[name].workload
    length = Rounds(rounds or N_ROUNDS, chosen.n_steps, N_WARM_UP)
    if quick:
        changes = QUICK_CHANGES if isinstance(workload, Workload) else QUICK_GPT
        workload, length = workload.model_copy(update=changes), Rounds(rounds or 2, 1, 1)
    machine = Machine.now(threads)
    assignments = [Assignment(kind=kind, workload=workload, threads=threads) for kind in (OURS, *chosen.peers)]
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
