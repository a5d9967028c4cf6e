"""`clearhead lab`, which the command line finds by the entry point `clearhead.commands`."""

import json as json_library
from collections.abc import Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from signal import SIGINT
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from clearhead.cli.options import Flag, check_positive, tell
from clearhead.errors import Interrupted, UserError
from clearhead_lab.exercise_commands import exercises, grade
from clearhead_lab.write_commands import write

if TYPE_CHECKING:
    from clearhead_lab.experiment import Experiment, Result

app = App(
    name="lab", group="Learn", help="Run the worked examples and the claims about the Transformer, and judge them."
)
app.command(exercises)
app.command(grade)
app.command(write)


@app.default
def lab(*words: Annotated[str, Parameter(show=False)]) -> None:
    """List the experiments, each with its claim and source."""
    from clearhead_lab.experiments import experiments

    if not words:
        list_experiments()
        return
    commands = [name for name in app if not name.startswith("-")]
    nearest = get_close_matches(words[0].lower(), [*commands, *experiments()], n=1)
    name = nearest[0] if nearest else "list"
    remedy = f"run {name}" if name in experiments() else name
    raise UserError(f"lab: expected {', '.join(sorted(commands))}, got {words[0]!r}; try `clearhead lab {remedy}`")


@app.command(name="list")
def list_experiments() -> None:
    """List the experiments, each with its claim and source."""
    from clearhead_lab.experiments import topics
    from clearhead_lab.running import PACKAGES

    for topic, listed in topics().items():
        print(topic)
        for experiment in listed:
            print(f"  {experiment.name}\n      {experiment.claim}\n      {experiment.source}")
            needs = [*experiment.data, *(PACKAGES.get(name, name) for name in experiment.needs)]
            if needs:
                print(f"      needs {', '.join(needs)}")
        print()
    print(
        "`clearhead lab run NAME` measures a claim and judges it; `--quick` takes about half a minute.\n"
        "`clearhead lab examples` computes the numbers of the documents, `clearhead lab walk` leads along their chains."
    )


@app.command
def run(
    *names: str, quick: Flag = False, seeds: int | None = None, out: Path | None = None, data: Path | None = None
) -> None:
    """Measure claims: prints each with its source, a table, and whether it holds by thresholds that the code states.

    Writes a figure and a JSON file. Ctrl-C keeps the seeds that are finished; a run with the same --out goes on.

    Args:
        names: Experiments, as `clearhead lab` lists them, or all.
        quick: Smaller sizes and one seed, in about half a minute. A seed in full size takes up to three minutes.
        seeds: Repetitions with other random numbers, of which the figures are means with their range (default: 3; 1
            with --quick).
        out: Folder for figure.svg and result.json, in subfolders if there are several experiments (default:
            runs/lab-NAME-1, -2, ...). Seeds that it holds already are not measured again.
        data: Folder of the real data that some experiments read, as docs/lab.md lays it out (default: the environment
            variable CLEARHEAD_SHARED_DATA).
    """
    from clearhead.session.running import next_folder
    from clearhead_lab.datasets import data_in
    from clearhead_lab.reporting import overview
    from clearhead_lab.running import prepare

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
        for experiment in ready:
            results.append(
                _run(experiment, n_seeds, quick=quick, folder=folder / experiment.name if several else folder)
            )
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
        for named in chosen:
            check_needs(named)
        return chosen
    ready: list[Experiment] = []
    for candidate in experiments().values():
        try:
            check_needs(candidate)
            ready.append(candidate)
        except UserError as error:
            tell(f"lab run all: leaves out {candidate.name}: {error}")
    return ready


def _run(experiment: "Experiment", n_seeds: int, *, quick: bool, folder: Path) -> "Result":
    """Runs an experiment, prints it, and writes its files into the folder."""
    from clearhead_lab.reporting import head, report
    from clearhead_lab.running import run

    print(head(experiment), end="\n\n", flush=True)
    result = run(experiment, range(n_seeds), quick=quick, folder=folder, say=tell)
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


@app.command
def examples(*ids: str, errata: Flag = False, json: Flag = False) -> None:
    """Compute the worked examples of the source documents and compare them with what is printed.

    The engine's own parts compute each record. Prints its verdict; where a number is wrong, the right value and the
    cause.

    Args:
        ids: Records to compute, such as s0-09, or the beginning of ids: s2 for all of document 002 (default: all).
        errata: Print the page docs/errata.md.
        json: Print one JSON object a record: id, printed, ours, verdict.
    """
    from clearhead_lab.examples.records import chosen, numbers
    from clearhead_lab.examples.telling import lines, page
    from clearhead_lab.examples.verdicts import judged, tally

    if errata and json:
        raise UserError("examples: expected one of --errata and --json, got both; leave one of them out")
    results = list(judged(chosen(ids)))
    if errata:
        print(page(results), end="")
        return
    if json:
        for result in results:
            printed = result.record.printed
            flat = list(numbers(printed)) if isinstance(printed, list) else printed
            print(
                json_library.dumps(
                    {"id": result.record.id, "printed": flat, "ours": result.ours, "verdict": result.verdict}
                )
            )
        return
    print("\n".join(lines(results)).lstrip("\n"))
    print(f"\n{tally(results)}.\n✓ reproduces  ≈ off by rounding  ✗ wrong  · no printed answer  ? cannot be checked")


@app.command
def table(folder: Path, /, *, into: Path | None = None) -> None:
    """Print a table of all experiments: verdict, the figure that decides, its spread and whether seeds agree.

    Args:
        folder: What `lab run all --out FOLDER` wrote.
        into: A page, such as docs/lab.md, whose table to replace between its two marks.
    """
    from clearhead_lab.experiments import experiments
    from clearhead_lab.table import kept, lines, put_into

    known = experiments()
    table = "\n".join(lines(known, kept(folder, known)))
    if into is None:
        print(table)
    else:
        put_into(into, table)
        print(f"Written into {into}")


@app.command
def train(*, export: Path = Path("translator.html")) -> None:
    """Write a page in which the course's translator learns in the browser, from random weights.

    Play and pause, switch a head or the positions off and go on, watch attention and the share of unseen sentences that
    are right, and take the checkpoint to Python. The file needs no network.

    Args:
        export: HTML file to write.
    """
    from clearhead.storage.disk import replace_file
    from clearhead_lab.learning_page import html

    replace_file(export, html())
    print(export)
    tell("Open it in a browser and press Play.")


@app.command
def walk(
    name: str | None = None, /, *, export: Path | None = None, port: int | None = None, browser: bool = True
) -> None:
    """Walk along a chain of the source documents in the explorer: its own numbers and matrices, step by step.

    Each step shows what the document prints and what is right, and why they differ. Prints the address of the page;
    Ctrl-C ends it. Without a name it lists the chains.

    Args:
        name: A chain, such as apple or game.
        export: HTML file to write in place of serving; it needs no network.
        port: Port of the page's server (default: a free one).
        browser: Open the page, where there is a display.
    """
    from clearhead.cli.look.explore import serve
    from clearhead.explorer.answering.questions import RunRequest
    from clearhead.explorer.export.page import fragment, html_of
    from clearhead.explorer.session import Session
    from clearhead.explorer.static_files import check_built
    from clearhead.storage.disk import replace_file
    from clearhead_lab.walks import STORIES, Story, chains, find

    if name is None:
        for chain in chains().values():
            print(f"{chain.name}\n    “{chain.text}”: {chain.source}")
        for story in STORIES:
            print(f"{story.name}\n    no network: `clearhead lab run {story.experiment}`")
        return
    chain = find(name)
    if isinstance(chain, Story):
        print(f"{chain.why}\n`clearhead lab run {chain.experiment}` measures it.")
        print(f"`clearhead lab examples {chain.records}` computes its numbers.")
        return
    check_built()
    start = fragment(RunRequest(text=chain.text), {"mode": "learn", "walk": chain.name})

    def session() -> Session:
        return Session(chain.model(), name=chain.name, text=chain.text, walks=chain.documents())

    if export is None:
        serve(session, port=port or 0, browser=browser, fragment=start)
        return
    opened = session()
    replace_file(export, html_of(opened, opened.start, state=start))
    print(export)
    tell(f"{export.stat().st_size / 1e6:.1f} MB. Open it in a browser; it needs no network.")
