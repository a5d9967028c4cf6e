"""The table of all experiments in `docs/lab.md`, from the results that a run has kept."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from clearhead.errors import UserError, reason
from clearhead_lab.experiment import Experiment, Result
from clearhead_lab.reporting import by_seed, measured, spread
from clearhead_lab.running import FILE, judged

BEGIN, END = "<!-- lab table: begin -->", "<!-- lab table: end -->"
"""The lines of a page between which the table stands."""


def kept(folder: Path, experiments: Mapping[str, Experiment]) -> dict[str, Result]:
    """The results in a run's folder and in its subfolders, by experiment.

    Raises UserError if there are none, or for a file that is no result of these experiments.
    """
    paths = sorted([*folder.glob(FILE), *folder.glob(f"*/{FILE}")])
    if not paths:
        remedy = f"try `clearhead lab run all --out {folder}`"
        raise UserError(f"{folder}: expected {FILE} or folders with one, as lab run writes, got none; {remedy}")
    found: dict[str, Result] = {}
    for path in paths:
        one = judged(path, experiments)
        name = one.experiment.name
        if name in found:
            raise UserError(f"{path}: expected one result of {name}, got a second one; remove one of them")
        if one.seeds:
            found[name] = one
    return found


def lines(experiments: Mapping[str, Experiment], results: Mapping[str, Result]) -> Iterator[str]:
    """A row for each experiment in order, measured or not, and the time that the results took."""
    yield "| experiment, claim, source | verdict | what decides: mean over seeds [range] | seeds | stable | time |"
    yield "|---|---|---|---|---|---|"
    for one in experiments.values():
        yield f"| **{one.name}**: {one.claim} *{one.source}* | " + " | ".join(_cells(results.get(one.name))) + " |"
    minutes = sum(one.cpu_seconds for one in results.values()) / 60
    yield ""
    n = f"{len(results)} of {len(experiments)} experiments were run"
    yield f"{n}, in {minutes:.0f} minutes of processor time. {_agreement(results)}"


def _agreement(results: Mapping[str, Result]) -> str:
    """The number of verdicts that are the same on every seed, among experiments with several seeds."""
    several = [one for one in results.values() if len(one.seeds) > 1]
    if not several:
        return "One seed does not say whether a verdict is stable."
    n_stable = sum(one.stable for one in several)
    return f"{n_stable} of the {len(several)} verdicts that come from several seeds are the same on every seed."


def _cells(result: Result | None) -> tuple[str, ...]:
    if result is None:
        return "not measured", "", "", "", ""
    one, n = result.deciding, len(result.seeds)
    finding = "" if result.verdict == "holds" else result.finding
    failed = f"{one.check.what}: {spread(one.values)}. The check fails, because it asks for {one.check.expected}"
    figure = f"{finding} *{measured(one) if one.share else failed}*".lstrip()
    seeds = (f"{n}" if n == result.wanted else f"{n} of {result.wanted}") + ", quick" * result.quick
    return result.verdict, figure, seeds, _stable(result), f"{result.cpu_seconds / n:.0f} s a seed"


def _stable(result: Result) -> str:
    """The agreement of the seeds, and the checks on which they disagree."""
    n = len(result.seeds)
    if n == 1:
        return "unknown"
    shares = [(one.check.what, round(one.share * n)) for one in result.doubtful]
    stable = "yes: the verdict is the same on every seed" if shares else "yes"
    if not result.stable:
        stable = f"**no**: the verdict is {by_seed(result)} of {n} seeds"
    return ". ".join([stable, *(f"The check “{what}” passes on {k} of {n} seeds" for what, k in shares)])


def put_into(page: Path, table: str) -> None:
    """Replaces what stands between the marks of a page. Raises UserError if it cannot, or for a page without both."""
    try:
        text = page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{page}: expected a page with the table's marks, got {reason(error)}; try another") from None
    before, begins, rest = text.partition(BEGIN)
    _, ends, after = rest.partition(END)
    if not begins or not ends:
        raise UserError(f"{page}: expected the lines {BEGIN} and {END}, got none; add them where the table belongs")
    try:
        page.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{page}: expected to write there, got {reason(error)}; try another") from None
