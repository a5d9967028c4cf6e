"""The figure of a result as SVG: the mean over seeds, with their range."""

from pathlib import Path
from statistics import mean
from typing import Any

from clearhead_lab.experiment import Label, Result

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
