"""`clearhead curve`."""

from collections.abc import Sequence
from pathlib import Path

from clearhead.errors import UserError
from clearhead.training.beginning import require_run
from clearhead.training.metrics_log import read_metrics


def curve_command(runs: Sequence[Path], *, out: Path) -> None:
    """Draw the loss of each step and the first score of each evaluation, a line for each run, in one picture."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("curve: expected matplotlib, got no such package; try pip install 'clearhead[plot]'") from None
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    loss, score = figure.subplots(1, 2)
    names: dict[str, None] = {}
    for run in runs:
        require_run(run)
        events = read_metrics(run)
        steps = [event for event in events if event.get("kind") == "stepped"]
        loss.plot([e["step"] for e in steps], [e["loss"] for e in steps], linewidth=0.8, label=str(run))
        evaluations = [(e["step"], e["scores"]) for e in events if isinstance(e.get("scores"), dict) and e["scores"]]
        firsts = [(step, *next(iter(scores.items()))) for step, scores in evaluations if isinstance(scores, dict)]
        names |= dict.fromkeys(name for _, name, _ in firsts)
        values = [value["value"] if isinstance(value, dict) else None for _, _, value in firsts]
        score.plot([step for step, _, _ in firsts], values, marker="o", markersize=3, label=str(run))
    loss.set(xlabel="step", ylabel="training loss")
    score.set(xlabel="step", ylabel=", ".join(names) or "score")
    loss.legend(fontsize="small")
    try:
        figure.savefig(out)
    except ValueError as error:
        raise UserError(f"--out {out}: expected a picture such as curve.svg or curve.png, got {error}") from None
    print(out)
