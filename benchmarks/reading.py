"""`python -m benchmarks.reading`: memory and CPU time of reading a large CSV, against pandas."""

import csv
import json
import random
import resource
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from statistics import median

from cyclopts import App

from benchmarks.entry import run_command

MEMORY, TIME = 0.5, 1.0
COLUMNS = ["text", "label"]
app = App(name="python -m benchmarks.reading", help="Reading a large CSV: memory and CPU time, against pandas.")


def write(path: Path, n_bytes: int) -> None:
    """A table of texts with commas, quotes, accents and line feeds, between four other columns."""
    rng, start = random.Random(1), 0
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 9))) for _ in range(5000)] + ["café", "“naïve”"]
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["id", "date", "user", "text", "label"])
        while path.stat().st_size < n_bytes:
            start += 1000
            for n in range(start - 1000, start):
                text = " ".join(rng.choices(words, k=rng.randint(5, 80)))
                text = f'{text}, they said "so",{text[:9]}' if n % 5 == 0 else text
                text = f"{text}\n{text[:30]}" if n % 50 == 0 else text
                rows.writerow([n, "2024-01-02", f"user{n % 9999}", text, rng.choice(["good", "bad", "fair"])])


def cells(path: Path) -> Callable[[], object]:
    """The cells of two columns, row by row."""
    from clearhead.data.bad_rows import RowErrors
    from clearhead.data.tables import read_cells
    from clearhead.recipe.data import Table

    return lambda: deque(read_cells(Table(path=path, text=0, header=True), COLUMNS, RowErrors()), maxlen=0)


def sniffed(path: Path) -> Callable[[], object]:
    """How the table is written, and a sample of its rows, from all of them."""
    from clearhead.data.sniffing import sniff

    return lambda: sniff(path)


def examples(path: Path) -> Callable[[], object]:
    """Every labelled text in memory, as classification reads them."""
    from clearhead.recipe.data import Table
    from clearhead.tasks.classification.data import ClassificationData, read_labelled

    table = Table(path=path, text="text", header=True)
    return lambda: read_labelled(table, ClassificationData(train=table))


def frame(path: Path) -> Callable[[], object]:
    """pandas' frame of the whole file."""
    import pandas as pd

    return lambda: pd.read_csv(path)


def columns(path: Path) -> Callable[[], object]:
    """pandas' frame of the two columns."""
    import pandas as pd

    return lambda: pd.read_csv(path, usecols=COLUMNS)


def lists(path: Path) -> Callable[[], object]:
    """The two columns by pandas, as lists of Python's texts."""
    import pandas as pd

    return lambda: pd.read_csv(path, usecols=COLUMNS).to_numpy().tolist()


SIDES = {one.__name__: one for one in (cells, sniffed, examples, frame, columns, lists)}


@app.command
def read(side: str, path: Path) -> None:
    """The peak memory in bytes and the CPU seconds of one way to read, after its imports."""
    act = SIDES[side](path)
    began = time.process_time()
    result = act()
    cpu, peak = time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"cpu": cpu, "peak": peak, "result": type(result).__name__}))


@app.default
def reading(*, megabytes: int = 1000, rounds: int = 3) -> None:
    """Write a CSV of this size, and read it in a fresh process each time.

    Parameters
    ----------
    megabytes: Size of the file.
    rounds: Processes of each way to read, of which the median counts.
    """

    from benchmarks.figures import Figure, show, within  # Their imports take memory that is not of the reading.

    def measure(scratch: Path) -> None:
        path = scratch / "reviews.csv"
        write(path, megabytes * 1_000_000)
        found: dict[str, tuple[float, float]] = {}
        for side in SIDES:
            command = [sys.executable, "-m", "benchmarks.reading", "read", side, str(path)]
            runs = [subprocess.run(command, capture_output=True, check=True).stdout for _ in range(rounds)]
            starts = [json.loads(run) for run in runs]
            found[side] = median(one["cpu"] for one in starts), median(one["peak"] for one in starts)
            print(f"{side}: {found[side][0]:.2f} CPU s, {found[side][1] / 1e6:,.0f} MB at most", flush=True)
        cpu, peak = (found["cells"][i] / found["frame"][i] for i in (0, 1))
        time_of_lists = found["cells"][0] / found["lists"][0]
        show(
            f"Reading {megabytes} MB of CSV row by row",
            [
                Figure("peak memory / pandas' frame", peak, MEMORY, at_most=True),
                Figure("CPU time / pandas' lists of texts", time_of_lists, TIME, at_most=True),
                Figure("CPU time / pandas' frame", cpu, TIME, at_most=True),
            ],
        )

    within(measure)


if __name__ == "__main__":
    run_command(app)
