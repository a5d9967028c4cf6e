"""Runs an experiment over seeds and keeps what it measures: a JSON file and a figure, also when it is interrupted."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import torch

from clearhead.errors import UserError
from clearhead.lab.datasets import datasets
from clearhead.lab.experiment import Experiment, Figures, Result, Row
from clearhead.lab.figures import draw


def check_needs(experiment: Experiment) -> None:
    """Raises UserError if a package or a file is missing that the experiment needs."""
    for name in experiment.needs:
        if find_spec(name) is None:
            where = f"lab run {experiment.name}"
            raise UserError(f"{where}: expected {name}, got no such package; try pip install 'clearhead[lab]'")
    for name in experiment.data:
        datasets()[name].path()


def run(
    experiment: Experiment, seeds: Iterable[int], *, quick: bool, folder: Path | None, say: Callable[[str], None]
) -> Result:
    """The result over these seeds. Ctrl-C ends it with the seeds that are finished, which `result.finished` says.

    Writes result.json and figure.svg into the folder after each seed.
    """
    begun, worked, done, wanted = perf_counter(), process_time(), dict[int, Figures](), list(seeds)
    result = Result(experiment, done, quick, len(wanted), 0.0, 0.0)
    with suppress(KeyboardInterrupt), torch.random.fork_rng(devices=[]), _one_thread():
        for seed in wanted:
            torch.manual_seed(seed)
            rows: list[Row] = []
            for row in experiment.measure(seed, quick):
                rows.append(row)
                say(f"seed {seed}  {told(row)}")
            done[seed] = Figures(rows)
            seconds = perf_counter() - begun, process_time() - worked
            result = Result(experiment, dict(done), quick, len(wanted), *seconds)
            if folder is not None:
                save(result, folder)
    return result


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


def save(result: Result, folder: Path) -> None:
    """Writes result.json, and figure.svg where matplotlib is installed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(document(result), indent=1) + "\n", encoding="utf-8")
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
        "stable": result.stable,
        "finished": result.finished,
        "quick": result.quick,
        "seeds": list(result.seeds),
        "wanted": result.wanted,
        "seconds": round(result.seconds, 1),
        "cpu_seconds": round(result.cpu_seconds, 1),
        "checks": [
            {
                "what": one.check.what,
                "expected": one.check.expected,
                "limit": one.check.is_limit,
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
