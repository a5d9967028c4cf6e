"""Curves against one size, as SVG."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from clearhead.errors import UserError

BLUE, GREY = "#1f5fa8", "#888888"


@dataclass(frozen=True)
class Panel:
    """One quantity: on a logarithmic axis with the power law of its end beside it, or in percent."""

    title: str
    unit: str
    y: Sequence[float]
    power: float | None = None
    """Exponent between the last two values; None for percent."""


def check() -> None:
    """Raises UserError where matplotlib is missing."""
    if find_spec("matplotlib") is None:
        raise UserError("out: expected matplotlib for plots, got none installed; try pip install 'clearhead[plot]'")


def draw(path: Path, name: str, x: Sequence[int], panels: Sequence[Panel]) -> None:
    """Panels side by side over x, whose name is `name`; the same bytes for the same figures."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "font.size": 9}):
        figure = Figure(figsize=(3 * len(panels), 2.8), layout="constrained")
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            axes.plot(x, panel.y, "o-", color=BLUE, markersize=4)
            if panel.power is None:
                axes.set_ylim(0, 100)
            else:
                # The slope of the end, drawn back through all.
                line = [panel.y[-1] * (value / x[-1]) ** panel.power for value in x]
                axes.plot(x, line, "--", color=GREY, linewidth=1)
                axes.set_yscale("log")
            axes.set_xscale("log", base=2)
            axes.set_xticks(x, [f"{value // 1024}k" if value >= 1024 else str(value) for value in x])
            axes.minorticks_off()
            axes.set_title(panel.title, fontsize=9)
            axes.set_xlabel(name)
            axes.set_ylabel(panel.unit)
            axes.grid(color="#dddddd", linewidth=0.6)
            axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, metadata={"Date": None})
