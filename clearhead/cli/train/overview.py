"""`clearhead recipes` and `curve`."""

import json
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from clearhead.cli.options import Flag
from clearhead.errors import UserError, require


def recipes(*, schema: Flag = False) -> None:
    """List the recipes that `clearhead train` knows by name, each with a command that uses it.

    Args:
        schema: Print the JSON Schema of a recipe, with which editors complete and check a recipe file:
            `clearhead recipes --schema > recipe.schema.json`, and the file's first line is
            `#:schema recipe.schema.json` (Even Better TOML in VS Code, taplo elsewhere).
    """
    from clearhead.recipe import installed

    if schema:
        from clearhead.tasks.registry import recipe_schema

        print(json.dumps(recipe_schema(), indent=2))
        return
    files = installed()
    width = max(map(len, files), default=0) + 2
    for name, file in sorted(files.items()):
        about, *lines = comment(file)
        print(f"{name:<{width}}{about}", *(f"{'':<{width}}{line}" for line in lines), sep="\n")


def comment(file: Path) -> list[str]:
    """The lines of the comment at the beginning of a recipe file."""
    lines = takewhile(lambda line: line.startswith("#"), file.read_text(encoding="utf-8").splitlines())
    return [line.lstrip("#").strip() for line in lines] or [""]


def curve(runs: Annotated[tuple[Path, ...], Parameter(negative="")], /, *, out: Path = Path("curve.svg")) -> None:
    """Draw the learning curves of runs: the loss of each step, and the main scores. Also while they train.

    Needs pip install 'clearhead[plot]'.

    Args:
        runs: Folders of runs, such as runs/translation-1, which share a picture.
        out: The picture; its name says the format: .svg, .png, .pdf.
    """
    from clearhead.live.log import RunLog
    from clearhead.training.run_folder import require_run

    require("curve", "matplotlib", "plot")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    loss, score = figure.subplots(1, 2)
    names: dict[str, None] = {}
    for run in runs:
        require_run(run)
        history: Any = RunLog(run).read()
        if history.problem:
            raise UserError(history.problem)
        loss.plot(history.columns["step"], history.columns["loss"], linewidth=0.8, label=str(run))
        firsts = [
            (event["step"], *next(iter(event["scores"].items()))) for event in history.evaluations if event["scores"]
        ]
        names |= dict.fromkeys(name for _, name, _ in firsts)
        values = [value["value"] for _, _, value in firsts]
        score.plot([step for step, _, _ in firsts], values, marker="o", markersize=3, label=str(run))
    loss.set(xlabel="step", ylabel="training loss")
    score.set(xlabel="step", ylabel=", ".join(names) or "score")
    loss.legend(fontsize="small")
    try:
        figure.savefig(out)
    except ValueError as error:
        raise UserError(f"--out {out}: expected a picture such as curve.svg or curve.png, got {error}") from None
    print(out)
