"""`clearhead lab`, which the command line finds by the entry point `clearhead.commands`."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from clearhead.cli.options import Flag

app = App(
    name="lab", group="Learn", help="Run the worked examples and the claims about the Transformer, and judge them."
)


@app.default
def lab_default(*words: Annotated[str, Parameter(show=False)]) -> None:
    """List the experiments, each with its claim and source."""
    from clearhead_lab.commands import default_command

    default_command(words, [name for name in app if not name.startswith("-")])


@app.command(name="list")
def lab_list() -> None:
    """List the experiments, each with its claim and source."""
    from clearhead_lab.commands import list_command

    list_command()


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
    from clearhead_lab.commands import run_command

    run_command(names, quick=quick, seeds=seeds, out=out, data=data)


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
    from clearhead_lab.commands import examples_command

    examples_command(ids, errata=errata, as_json=json)


@app.command
def table(folder: Path, /, *, into: Path | None = None) -> None:
    """Print a table of all experiments: verdict, the figure that decides, its spread and whether seeds agree.

    Args:
        folder: What `lab run all --out FOLDER` wrote.
        into: A page, such as docs/lab.md, whose table to replace between its two marks.
    """
    from clearhead_lab.commands import table_command

    table_command(folder, into=into)


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
    from clearhead_lab.commands import walk_command

    walk_command(name, export=export, port=port or 0, browser=browser)


@app.command
def exercises(*, out: Path = Path("exercises")) -> None:
    """Write the exercises as HTML pages, one for each set. They work without a server and without a network.

    Args:
        out: Folder for the pages.
    """
    from clearhead_lab.exercise_commands import exercises_command

    exercises_command(out)


@app.command
def grade(*files: Path, table: Path | None = None) -> None:
    """Grade the answers that pages of exercises exported.

    Runs every model with the learner's edits and judges the values, whatever the file says of itself. Of one file it
    prints every exercise, with what was wrong; of several a row each, and the exercises that were most often not right.

    Args:
        files: Files from "Export answers" of a page, or folders of such files.
        table: CSV file to write: a row for each exercise of each file.
    """
    from clearhead_lab.exercise_commands import grade_command

    grade_command(files, table=table)
