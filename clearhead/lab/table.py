"""The table of all experiments in `docs/lab.md`, from the results that a run has kept."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel, ValidationError

from clearhead.errors import UserError
from clearhead.lab.experiment import Experiment
from clearhead.lab.reporting import spread

BEGIN, END = "<!-- lab table: begin -->", "<!-- lab table: end -->"
"""The lines of a page between which the table stands."""


class KeptCheck(BaseModel):
    """A check of `result.json`."""

    what: str
    expected: str
    limit: bool
    values: list[float]
    share: float
    """The share of seeds on which it passes."""

    @property
    def weight(self) -> int:
        """How much it says about the verdict: 0 for a refuted claim, 3 for a check that passes on every seed."""
        if self.share == 1:
            return 3
        return 2 if self.limit else int(self.share >= 0.5)


class Kept(BaseModel):
    """What the table needs of `result.json`."""

    experiment: str
    verdict: str
    stable: bool
    quick: bool
    seeds: list[int]
    wanted: int
    cpu_seconds: float
    checks: list[KeptCheck]

    @property
    def deciding(self) -> KeptCheck:
        """The first check of those that say most about the verdict."""
        return min(self.checks, key=lambda one: one.weight)


def kept(folder: Path) -> dict[str, Kept]:
    """The results in the subfolders of a run's folder, by experiment.

    Raises UserError if there are none, or for a file that is no result.
    """
    paths = sorted(folder.glob("*/result.json"))
    if not paths:
        raise UserError(f"{folder}: expected folders with result.json, got none; try lab run all --out {folder}")
    found = (_read(path) for path in paths)
    return {one.experiment: one for one in found}


def _read(path: Path) -> Kept:
    try:
        return Kept.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "JSON"
        raise UserError(f"{path}:{where}: expected a result of lab run, got one with {first['msg']!r}") from None


def lines(experiments: Iterable[Experiment], results: Mapping[str, Kept]) -> Iterator[str]:
    """A row for each experiment in order, measured or not, and what the results took."""
    yield "| experiment and claim | verdict | check that decides: mean over seeds [range] | seeds | stable |"
    yield "|---|---|---|---|---|"
    for one in experiments:
        yield f"| **{one.name}**: {one.claim} | " + " | ".join(_cells(results.get(one.name))) + " |"
    minutes = sum(one.cpu_seconds for one in results.values()) / 60
    yield ""
    yield f"{len(results)} experiments, {minutes:.0f} minutes of processor time."


def _cells(result: Kept | None) -> tuple[str, str, str, str]:
    if result is None:
        return "not measured", "", "", ""
    one, n = result.deciding, len(result.seeds)
    figure = f"{one.what}: {spread(one.values)}, expected {one.expected}" + " (a limit)" * one.limit
    seeds = (f"{n}" if n == result.wanted else f"{n} of {result.wanted}") + ", quick" * result.quick
    doubtful = [f"{c.what} ({round(c.share * n)} of {n} pass)" for c in result.checks if c.share not in (0, 1)]
    stable = "yes" if result.stable else "**no**: " + "; ".join(doubtful)
    return result.verdict, figure, seeds, stable if n > 1 else "unknown"


def put_into(page: Path, table: str) -> None:
    """Replaces what stands between the marks of a page. Raises UserError if it does not have both."""
    text = page.read_text(encoding="utf-8")
    before, begins, rest = text.partition(BEGIN)
    _, ends, after = rest.partition(END)
    if not begins or not ends:
        raise UserError(f"{page}: expected the lines {BEGIN} and {END}, got none; add them where the table belongs")
    page.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")
