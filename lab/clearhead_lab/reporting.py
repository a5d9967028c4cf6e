"""A result as text: the claim, a table and the verdict."""

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import mean

from clearhead_lab.experiment import Experiment, Judgement, Label, Result

ROLES = {"claim": "", "limit": "  (a limit, not the claim)", "control": "  (a control, not the claim)"}


def report(result: Result) -> Iterator[str]:
    """The table of means with the range over seeds, each check, and the verdict with what was found."""
    yield from table(result)
    yield ""
    for one in result.judgements:
        yield check_line(one)
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
    """`holds on 2, does not hold on 1`: the verdicts of single seeds."""
    return ", ".join(f"{verdict} on {n}" for verdict, n in Counter(result.verdicts).most_common())


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
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    for line in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


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
