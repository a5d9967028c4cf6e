"""Reports a result: the text of its checks and its verdict, and its figure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from clearhead.cli.options import aligned
from clearhead_lab.experiment import Experiment, Judgement, Label, Result

ROLES = {"claim": "", "limit": "  (a limit, not the claim)", "control": "  (a control, not the claim)"}


def report(result: Result) -> Iterator[str]:
    """The table of means with the range over seeds, each check, and the verdict with what was found."""
    yield from table(result)
    yield ""
    for judgement in result.judgements:
        yield check_line(judgement)
    yield ""
    yield verdict_line(result)
    if result.finding:
        yield result.finding


def head(experiment: Experiment) -> str:
    """The claim and its source."""
    return f"Claim: {experiment.claim}\nSource: {experiment.source}"


def check_line(one: Judgement) -> str:
    """`✓ what: 0.98 [0.97, 0.99], expected at least 0.9`"""
    mark = "✓" if one.share == 1 else "✗" if one.share == 0 else "~"
    return f"{mark} {measured(one)}{ROLES[one.check.role]}"


def measured(one: Judgement) -> str:
    """`what: 0.98 [0.97, 0.99], expected at least 0.9`"""
    return f"{one.check.what}: {spread(one.values)}, expected {one.check.expected}"


def verdict_line(result: Result) -> str:
    """The verdict, over how many seeds, and whether they agree."""
    n, of = len(result.seeds), "" if result.finished else f" of {result.wanted}"
    agree = "" if n < 2 else ", the same on each" if result.stable else f", which disagree: {by_seed(result)}"
    size = ", quick" if result.quick else ""
    return f"Verdict: {result.verdict} ({n}{of} seed{'s' * (n != 1)}{agree}{size}, {result.seconds:.0f} s)"


def by_seed(result: Result) -> str:
    """`“holds” on 2, “does not hold” on 1`: the verdicts of single seeds."""
    return ", ".join(f"“{verdict}” on {n}" for verdict, n in Counter(result.verdicts).most_common())


def spread(values: Sequence[float]) -> str:
    """The mean of a figure's values, and their range."""
    low, high = f"{min(values):.3g}", f"{max(values):.3g}"
    return f"{mean(values):.4g}" if low == high else f"{mean(values):.4g} [{low}, {high}]"


def table(result: Result) -> Iterator[str]:
    """A line for each case: labels, then each figure's mean and range over seeds."""
    rows: dict[tuple[tuple[str, Label], ...], dict[str, list[float]]] = {}
    for figures in result.seeds.values():
        for row in figures.rows:
            values = rows.setdefault(tuple(row.labels.items()), {})
            for name, value in row.values.items():
                values.setdefault(name, []).append(value)
    labels = list(dict.fromkeys(name for key in rows for name, _ in key))
    names = list(dict.fromkeys(name for values in rows.values() for name in values))
    cells = [labels + names]
    for key, values in rows.items():
        known = dict(key)
        cells.append([_label(known.get(name, "")) for name in labels] + [_cell(values.get(name)) for name in names])
    yield from aligned(cells)


def _label(value: Label) -> str:
    return f"{value:g}" if isinstance(value, int | float) else value


def _cell(values: list[float] | None) -> str:
    return "" if values is None else spread(values)


def overview(results: Sequence[Result]) -> Iterator[str]:
    """A line for each experiment: the processor's time and the verdict."""
    width = max(len(one.experiment.name) for one in results)
    for one in results:
        doubt = "" if one.stable else f" (seeds disagree: {by_seed(one)})"
        yield f"{one.experiment.name:<{width}}  {one.cpu_seconds:>4.0f} s  {one.verdict}{doubt}"
    yield f"{'all':<{width}}  {sum(one.cpu_seconds for one in results):>4.0f} s of processor time"


COLORS = ("#1f5fa8", "#c2571a", "#3a7d34", "#7a4fa3", "#888888", "#b0348c", "#22868c")


def draw(result: Result, path: Path) -> None:
    """Writes the figure; the same bytes for the same numbers."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    plot, name = result.experiment.plot, result.experiment.name
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "font.size": 9}):
        figure = Figure(figsize=(5.5, 3.4), layout="constrained")
        axes: Any = figure.subplots()
        series = points(result)
        places = list(dict.fromkeys(x for values in series.values() for x in values))
        if any(isinstance(x, str) for x in places):
            _bars(axes, series, places)
        else:
            _lines(axes, series)
            if plot.log_x:
                axes.set_xscale("log", base=2)
                axes.set_xticks(places, [f"{x:g}" for x in places])
                axes.minorticks_off()
        if plot.log_y:
            axes.set_yscale("log")
        axes.set(xlabel=plot.x, ylabel=plot.y)
        axes.set_title(result.experiment.claim, fontsize=8, wrap=True)
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        if plot.by is not None:
            axes.legend(title=plot.by, fontsize="small", frameon=False)
        figure.savefig(path, metadata={"Date": None})


def points(result: Result) -> dict[str, dict[Label, list[float]]]:
    """The figure's values of all seeds, by line and place."""
    plot = result.experiment.plot
    found: dict[str, dict[Label, list[float]]] = {}
    for figures in result.seeds.values():
        for row in figures.rows:
            if plot.x in row.labels and plot.y in row.values:
                line = "" if plot.by is None else str(row.labels.get(plot.by, ""))
                found.setdefault(line, {}).setdefault(row.labels[plot.x], []).append(row.values[plot.y])
    return found


def _lines(axes: Any, series: dict[str, dict[Label, list[float]]]) -> None:
    for i, (line, values) in enumerate(series.items()):
        xs, color = list(values), COLORS[i % len(COLORS)]
        axes.plot(xs, [mean(values[x]) for x in xs], "o-", color=color, markersize=4, label=line)
        axes.fill_between(xs, [min(values[x]) for x in xs], [max(values[x]) for x in xs], color=color, alpha=0.15, lw=0)


def _bars(axes: Any, series: dict[str, dict[Label, list[float]]], places: list[Label]) -> None:
    width = 0.8 / len(series)
    for i, (line, values) in enumerate(series.items()):
        at = [places.index(x) + (i - (len(series) - 1) / 2) * width for x in values]
        means = [mean(v) for v in values.values()]
        reach = [
            [m - min(v) for m, v in zip(means, values.values(), strict=True)],
            [max(v) - m for m, v in zip(means, values.values(), strict=True)],
        ]
        axes.bar(at, means, width, yerr=reach, capsize=2, color=COLORS[i % len(COLORS)], label=line, ecolor="#444444")
    names = [str(x) for x in places]
    turned = {"rotation": 20, "ha": "right"} if sum(map(len, names)) > 50 else {}
    axes.set_xticks(range(len(places)), names, **turned)
