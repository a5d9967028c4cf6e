"""Runs an experiment over seeds, and keeps what is measured, so that an interrupted run can continue."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from importlib.util import find_spec
from inspect import getsource
from pathlib import Path
from statistics import StatisticsError
from time import perf_counter, process_time
from typing import Any

import torch
from pydantic import BaseModel, ValidationError

from clearhead.errors import UserError, reason
from clearhead.version import __version__
from clearhead_lab.datasets import datasets
from clearhead_lab.experiment import Experiment, Figures, Label, Result, Row
from clearhead_lab.reporting import draw

FILE = "result.json"


class KeptRow(BaseModel):
    """A row of `result.json`."""

    seed: int
    labels: dict[str, Label]
    values: dict[str, float]


class Kept(BaseModel):
    """What `result.json` says of a measurement. The verdict follows from its rows."""

    experiment: str
    quick: bool
    seeds: list[int]
    wanted: int
    version: str = ""
    design: str = ""
    times: dict[int, tuple[float, float]] = {}
    """Seconds and seconds of the processor of each seed."""
    seconds: float
    cpu_seconds: float
    rows: list[KeptRow]

    def figures(self) -> dict[int, Figures]:
        """The rows by seed."""
        n = len(self.seeds)
        return {
            seed: Figures(
                [Row(row.labels, row.values) for row in self.rows if row.seed == seed],
                *self.times.get(seed, (self.seconds / n, self.cpu_seconds / n)),
            )
            for seed in self.seeds
        }


def design(experiment: Experiment) -> str:
    """A fingerprint of the module that measures."""
    code = getsource(sys.modules[experiment.measure.__module__])
    return sha256(code.encode()).hexdigest()[:12]


def prepare(folder: Path) -> None:
    """Makes the folder. Raises UserError unless files can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{FILE}.part").write_bytes(b"")
        (folder / f"{FILE}.part").unlink()
    except OSError as error:
        raise UserError(f"{folder}: expected to write there, got {reason(error)}; try another --out") from None


def save(result: Result, folder: Path) -> None:
    """Writes result.json, and figure.svg where matplotlib is installed."""
    prepare(folder)
    part = folder / f"{FILE}.part"
    part.write_text(json.dumps(document(result), indent=1) + "\n", encoding="utf-8")
    part.replace(folder / FILE)
    if find_spec("matplotlib") is not None:
        draw(result, folder / "figure.svg")


def document(result: Result) -> dict[str, Any]:
    """The result as JSON, with the rows of every seed."""
    experiment = result.experiment
    return {
        "experiment": experiment.name,
        "claim": experiment.claim,
        "source": experiment.source,
        "verdict": result.verdict,
        "finding": result.finding,
        "stable": result.stable,
        "finished": result.finished,
        "quick": result.quick,
        "seeds": list(result.seeds),
        "wanted": result.wanted,
        "version": __version__,
        "design": design(experiment),
        "seconds": round(result.seconds, 1),
        "cpu_seconds": round(result.cpu_seconds, 1),
        "times": {seed: [round(one.seconds, 1), round(one.cpu_seconds, 1)] for seed, one in result.seeds.items()},
        "checks": [
            {
                "what": one.check.what,
                "expected": one.check.expected,
                "role": one.check.role,
                "values": list(one.values),
                "share": one.share,
            }
            for one in result.judgements
        ],
        "rows": [
            {"seed": seed, "labels": dict(row.labels), "values": dict(row.values)}
            for seed, figures in result.seeds.items()
            for row in figures.rows
        ],
    }


def read(path: Path) -> Kept:
    """Raises UserError if the file holds no result of `lab run`."""
    try:
        return Kept.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: expected a result of lab run, got {reason(error)}; try another folder") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "JSON"
        told = f"got one with {first['msg']!r}; try another folder, or remove the file"
        raise UserError(f"{path}:{where}: expected a result of lab run, {told}") from None


def measured_before(experiment: Experiment, folder: Path, *, quick: bool) -> Mapping[int, Figures]:
    """The seeds that a run of the same experiment, in the same sizes and of the same code, has kept in the folder.

    Raises UserError if the folder holds something else, which a run would overwrite.
    """
    path = folder / FILE
    if not path.exists():
        return {}
    one = read(path)
    wanted = (experiment.name, quick, __version__, design(experiment))
    if (one.experiment, one.quick, one.version, one.design) != wanted:
        return {}
    return one.figures()


def judged(path: Path, experiments: Mapping[str, Experiment]) -> Result:
    """A result that was kept, judged by the thresholds of today.

    Raises UserError if another version of its experiment has measured it.
    """
    one = read(path)
    again = f"try `clearhead lab run {one.experiment}` with a new --out"
    if one.experiment not in experiments:
        raise UserError(
            f"{path}: expected an experiment of this version, got {one.experiment!r}; `clearhead lab` lists all"
        )
    experiment = experiments[one.experiment]
    if one.design not in ("", design(experiment)):
        raise UserError(f"{path}: expected a result of this version of {one.experiment}, got one of another; {again}")
    result = Result(experiment, one.figures(), one.quick, one.wanted)
    try:
        _ = result.verdict
    except (LookupError, StatisticsError, ArithmeticError, ValueError):
        raise UserError(f"{path}: expected the figures of {one.experiment}, got others; {again}") from None
    return result


PACKAGES = {"sklearn": "scikit-learn"}
"""Names of packages that are imported under another name."""


def check_needs(experiment: Experiment) -> None:
    """Raises UserError if a package or a file is missing that the experiment needs."""
    for name in experiment.needs:
        if find_spec(name) is None:
            what = f"lab run {experiment.name}: expected {PACKAGES.get(name, name)}"
            raise UserError(f"{what}, got no such package; try pip install 'clearhead-lab[experiments]'")
    for name in experiment.data:
        datasets()[name].path()


def run(
    experiment: Experiment, seeds: Iterable[int], *, quick: bool, folder: Path | None, say: Callable[[str], None]
) -> Result:
    """The result over these seeds. Ctrl-C ends it with the seeds that are finished, which `result.finished` says.

    Writes result.json and figure.svg into the folder after each seed. Takes the seeds that the folder has already from
    the same code in the same sizes.
    """
    wanted = list(seeds)
    before: Mapping[int, Figures] = {} if folder is None else measured_before(experiment, folder, quick=quick)
    done = {seed: before[seed] for seed in wanted if seed in before}
    if folder is not None and (folder / FILE).exists() and not before:
        say(f"{folder / FILE}: of other code or other sizes, so every seed is measured anew")
    for seed in done:
        say(f"seed {seed}  kept from {folder}/{FILE}")
    with suppress(KeyboardInterrupt), torch.random.fork_rng(devices=[]), _one_thread():
        for seed in wanted:
            if seed in done:
                continue
            done[seed] = _measured(experiment, seed, quick=quick, say=say)
            if folder is not None:
                save(Result(experiment, _in_order(done), quick, len(wanted)), folder)
    return Result(experiment, _in_order(done), quick, len(wanted))


def _in_order(done: dict[int, Figures]) -> dict[int, Figures]:
    return dict(sorted(done.items()))


def _measured(experiment: Experiment, seed: int, *, quick: bool, say: Callable[[str], None]) -> Figures:
    """One seed."""
    begun, worked, rows = perf_counter(), process_time(), list[Row]()
    torch.manual_seed(seed)
    for row in experiment.measure(seed, quick):
        rows.append(row)
        say(f"seed {seed}  {told(row)}")
    return Figures(rows, perf_counter() - begun, process_time() - worked)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Limits PyTorch to one thread: in networks this small, threads mostly wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def told(row: Row) -> str:
    """A row on a line: labels, then figures."""
    labels = ", ".join(f"{name} {value}" for name, value in row.labels.items())
    return f"{labels}: " + ", ".join(f"{name} {value:.4g}" for name, value in row.values.items())
