"""`clearhead lab`: the worked examples and the experiments."""

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from signal import SIGINT
from typing import TYPE_CHECKING

from clearhead.commands import check_positive, tell
from clearhead.commands.train import next_folder
from clearhead.errors import Interrupted, UserError

if TYPE_CHECKING:
    from clearhead.lab.experiment import Result


def examples_command(ids: Sequence[str], *, errata: bool, as_json: bool) -> None:
    """Prints the verdict of each record, or the page of those that do not reproduce."""
    from clearhead.lab.examples.records import chosen, numbers
    from clearhead.lab.examples.telling import lines, page
    from clearhead.lab.examples.verdicts import judged, tally

    if errata and as_json:
        raise UserError("examples: expected one of --errata and --json, got both; leave one of them out")
    results = list(judged(chosen(ids)))
    if errata:
        print(page(results), end="")
        return
    if as_json:
        for one in results:
            printed = one.record.printed
            flat = list(numbers(printed)) if isinstance(printed, list) else printed
            print(json.dumps({"id": one.record.id, "printed": flat, "ours": one.ours, "verdict": one.verdict}))
        return
    print("\n".join(lines(results)).lstrip("\n"))
    print(f"\n{tally(results)}.\n✓ reproduces  ≈ off by rounding  ✗ wrong  · no printed answer  ? cannot be checked")


def list_command() -> None:
    """Prints each experiment with its claim and source."""
    from clearhead.lab.experiments import experiments

    for one in experiments().values():
        print(f"{one.name}\n    {one.claim}\n    {one.source}")
    print(
        "\n`clearhead lab run NAME` measures a claim, `clearhead lab examples` computes the numbers of the documents."
    )


def run_command(name: str, *, quick: bool, seeds: int | None, out: Path | None) -> None:
    """Runs an experiment, or `all`: claim, table and verdict on standard output, files in a folder.

    `all` writes each experiment into a subfolder, and ends with a line for each. Raises Interrupted after Ctrl-C, when
    what is measured is kept.
    """
    from clearhead.lab.experiments import experiment, experiments
    from clearhead.lab.reporting import head, overview, report
    from clearhead.lab.running import check_needs, run

    check_positive(seeds=seeds)
    n_seeds = seeds or (1 if quick else 3)
    chosen = list(experiments().values()) if name == "all" else [experiment(name)]
    for one in chosen:
        check_needs(one)
    if find_spec("matplotlib") is None:
        tell("lab run: no figure without matplotlib; pip install 'clearhead[lab]'")
    folder = next_folder(Path("runs"), f"lab-{name}") if out is None else out
    results: list[Result] = []
    for one in chosen:
        place = folder / one.name if name == "all" else folder
        print(head(one), end="\n\n", flush=True)
        result = run(one, range(n_seeds), quick=quick, folder=place, say=tell)
        print("\n".join(report(result)) if result.seeds else "Verdict: not finished")
        print(f"Written to {place}\n" if result.seeds else "", flush=True)
        results.append(result)
        if not result.finished:
            break
    if name == "all":
        print("\n".join(overview(results)), flush=True)
    if not results[-1].finished:
        raise Interrupted(f"stopped by Ctrl-C; {_kept(results, len(chosen), folder)}", SIGINT)


def _kept(results: "Sequence[Result]", n_chosen: int, folder: Path) -> str:
    """What an interrupted run has kept, of the last experiment and of those before it."""
    last, before = results[-1], len(results) - 1
    seeds = f"{len(last.seeds)} of {last.wanted} seeds"
    if n_chosen > 1:
        return f"kept {before} of {n_chosen} experiments, and {seeds} of {last.experiment.name}, in {folder}"
    return f"kept {seeds} in {folder}" if last.seeds else "no seed was finished"


def table_command(folder: Path, *, into: Path | None) -> None:
    """Prints the table of all experiments from the results in a folder, or puts it into a page."""
    from clearhead.lab.experiments import experiments
    from clearhead.lab.table import kept, lines, put_into

    table = "\n".join(lines(experiments().values(), kept(folder)))
    if into is None:
        print(table)
    else:
        put_into(into, table)
        print(f"Written into {into}")
