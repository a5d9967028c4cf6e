"""`clearhead lab`: the worked examples and the experiments."""

import json
from collections.abc import Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from signal import SIGINT
from typing import TYPE_CHECKING

from clearhead.cli.options import check_positive, tell
from clearhead.cli.train.session import next_folder
from clearhead.errors import Interrupted, UserError

if TYPE_CHECKING:
    from clearhead_lab.experiment import Experiment, Result


def examples_command(ids: Sequence[str], *, errata: bool, as_json: bool) -> None:
    """Prints the verdict of each record, or the page of those that do not reproduce."""
    from clearhead_lab.examples.records import chosen, numbers
    from clearhead_lab.examples.telling import lines, page
    from clearhead_lab.examples.verdicts import judged, tally

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


def default_command(words: Sequence[str], commands: Sequence[str]) -> None:
    """Lists the experiments. Raises UserError for words that are no command, with the nearest one."""
    from clearhead_lab.experiments import experiments

    if not words:
        list_command()
        return
    nearest = get_close_matches(words[0].lower(), [*commands, *experiments()], n=1)
    name = nearest[0] if nearest else "list"
    remedy = f"run {name}" if name in experiments() else name
    raise UserError(f"lab: expected {', '.join(sorted(commands))}, got {words[0]!r}; try `clearhead lab {remedy}`")


def list_command() -> None:
    """Prints each experiment by topic, with its claim and source, and what it needs."""
    from clearhead_lab.experiments import topics
    from clearhead_lab.running import PACKAGES

    for topic, some in topics().items():
        print(topic)
        for one in some:
            print(f"  {one.name}\n      {one.claim}\n      {one.source}")
            needs = [*one.data, *(PACKAGES.get(name, name) for name in one.needs)]
            if needs:
                print(f"      needs {', '.join(needs)}")
        print()
    print(
        "`clearhead lab run NAME` measures a claim and judges it; `--quick` takes about half a minute.\n"
        "`clearhead lab examples` computes the numbers of the documents, `clearhead lab walk` leads along their chains."
    )


def run_command(names: Sequence[str], *, quick: bool, seeds: int | None, out: Path | None, data: Path | None) -> None:
    """Runs experiments, or `all`: claim, table and verdict on standard output, files in a folder.

    Several are written into subfolders and end with a line for each. `all` leaves out those whose packages or data
    are missing. Raises UserError if they are named, and Interrupted after Ctrl-C, when what is measured is kept.
    """
    from clearhead_lab.datasets import data_in
    from clearhead_lab.reporting import overview
    from clearhead_lab.results import prepare

    check_positive(seeds=seeds)
    n_seeds = seeds or (1 if quick else 3)
    if data is not None and not data.is_dir():
        raise UserError(f"--data {data}: expected a folder, got none; docs/lab.md says what it holds")
    with data_in(data):
        ready = _ready(names)
        if find_spec("matplotlib") is None:
            tell("lab run: no figure without matplotlib; try pip install 'clearhead-lab[experiments]'")
        folder = out or next_folder(Path("runs"), f"lab-{names[0] if len(names) == 1 else 'some'}")
        prepare(folder)
        several = len(ready) > 1 or "all" in names
        results: list[Result] = []
        for one in ready:
            results.append(_run(one, n_seeds, quick=quick, folder=folder / one.name if several else folder))
            if not results[-1].finished:
                break
    if several:
        print("\n".join(overview(results)), flush=True)
    if results and not results[-1].finished:
        raise Interrupted(f"stopped by Ctrl-C; {_kept(results, len(ready), folder)}", SIGINT)


def _ready(names: Sequence[str]) -> "list[Experiment]":
    """The experiments of these names, or with `all` those whose packages and data are here."""
    from clearhead_lab.experiments import experiment, experiments
    from clearhead_lab.running import check_needs

    if not names:
        raise UserError("lab run: expected the names of experiments or all, got none; `clearhead lab` lists them")
    if "all" not in names:
        chosen = [experiment(name) for name in dict.fromkeys(names)]
        for one in chosen:
            check_needs(one)
        return chosen
    ready: list[Experiment] = []
    for one in experiments().values():
        try:
            check_needs(one)
            ready.append(one)
        except UserError as error:
            tell(f"lab run all: leaves out {one.name}: {error}")
    return ready


def _run(one: "Experiment", n_seeds: int, *, quick: bool, folder: Path) -> "Result":
    """Runs an experiment, prints it, and writes its files into the folder."""
    from clearhead_lab.reporting import head, report
    from clearhead_lab.running import run

    print(head(one), end="\n\n", flush=True)
    result = run(one, range(n_seeds), quick=quick, folder=folder, say=tell)
    print("\n".join(report(result)) if result.seeds else "Verdict: not finished")
    print(f"Written to {folder}\n" if result.seeds else "", flush=True)
    return result


def _kept(results: "Sequence[Result]", n_chosen: int, folder: Path) -> str:
    """Says which results an interrupted run has kept, and how to continue it."""
    last, before = results[-1], len(results) - 1
    if not before and not last.seeds:
        return "no seed was finished"
    seeds = f"{len(last.seeds)} of {last.wanted} seeds"
    some = f"{before} of {n_chosen} experiments, and {seeds} of {last.experiment.name}," if n_chosen > 1 else seeds
    return f"kept {some} in {folder}; the same command with --out {folder} continues from there"


def table_command(folder: Path, *, into: Path | None) -> None:
    """Prints the table of all experiments from the results in a folder, or puts it into a page."""
    from clearhead_lab.experiments import experiments
    from clearhead_lab.table import kept, lines, put_into

    known = experiments()
    table = "\n".join(lines(known, kept(folder, known)))
    if into is None:
        print(table)
    else:
        put_into(into, table)
        print(f"Written into {into}")


def walk_command(name: str | None, *, export: Path | None, port: int, browser: bool) -> None:
    """Opens the explorer on a chain of the documents, in Learn; lists the chains without a name.

    Of a chain that is no network it prints why, and what shows it.
    """
    from clearhead.cli.look.explore import serve
    from clearhead.explorer.answering.questions import RunRequest
    from clearhead.explorer.export.page import fragment, html_of
    from clearhead.explorer.session import Session
    from clearhead.explorer.static_files import check_built
    from clearhead.storage.disk import replace_file
    from clearhead_lab.walks import STORIES, Story, chains, find

    if name is None:
        for one in chains().values():
            print(f"{one.name}\n    “{one.text}”: {one.source}")
        for one in STORIES:
            print(f"{one.name}\n    no network: `clearhead lab run {one.experiment}`")
        return
    found = find(name)
    if isinstance(found, Story):
        print(f"{found.why}\n`clearhead lab run {found.experiment}` measures it.")
        print(f"`clearhead lab examples {found.records}` computes its numbers.")
        return
    check_built()
    start = fragment(RunRequest(text=found.text), {"mode": "learn", "walk": found.name})

    def session() -> Session:
        return Session(found.model(), name=found.name, text=found.text, walks=found.documents())

    if export is None:
        serve(session, port=port, browser=browser, fragment=start)
        return
    opened = session()
    replace_file(export, html_of(opened, opened.start, state=start))
    print(export)
    tell(f"{export.stat().st_size / 1e6:.1f} MB. Open it in a browser; it needs no network.")
