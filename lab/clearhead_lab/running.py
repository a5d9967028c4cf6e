"""Runs an experiment over seeds. Stores each seed's figures, so that an interrupted run can continue."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter, process_time

import torch

from clearhead.errors import UserError
from clearhead_lab.datasets import datasets
from clearhead_lab.experiment import Experiment, Figures, Result, Row
from clearhead_lab.results import FILE, measured_before, save

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
