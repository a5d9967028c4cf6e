"""`python -m benchmarks.figures NAME`: a figure we promise, measured through the product's own commands."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from benchmarks.entry import run_command
from benchmarks.racing.machine import Machine

app = App(name="python -m benchmarks.figures", help="Figures we promise, each beside what was measured.")
Data = Annotated[Path, Parameter(help="Folder with the real corpora: multi30k/, tinyshakespeare/.")]


@dataclass(frozen=True)
class Figure:
    """What was measured, and what was promised."""

    name: str
    measured: float
    promised: float
    at_most: bool = False

    @property
    def holds(self) -> bool:
        """Whether the promise is kept."""
        return self.measured <= self.promised if self.at_most else self.measured >= self.promised

    def __str__(self) -> str:
        sign = "<=" if self.at_most else ">="
        measured = f"{self.measured:,.4f}".rstrip("0").rstrip(".")
        return f"| {self.name} | {measured} | {sign} {self.promised:g} | {'yes' if self.holds else 'NO'} |"


def clearhead(*arguments: str) -> dict[str, Any]:
    """Run a command with --json; its figures, and `wall` seconds from start to end."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "clearhead", *arguments, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1]) | {"wall": time.perf_counter() - began}


def show(title: str, figures: list[Figure]) -> None:
    """A table; exits with 1 where a promise is broken."""
    print(f"\n{title}\n\n| figure | measured | promised | holds |\n|---|---|---|---|")
    print("\n".join(map(str, figures)), flush=True)
    if not all(figure.holds for figure in figures):
        raise SystemExit(1)


def within(measure: Callable[[Path], None]) -> None:
    """Measure with a scratch folder for the models."""
    print(Machine.now(None))
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder))


@app.command
def demo(*languages: str) -> None:
    """`clearhead demo` for each language (default: fr, de, es); two and a half minutes each."""

    def measure(folder: Path) -> None:
        for language in languages or ("fr", "de", "es"):
            found = clearhead("demo", "--to", language, "--no-browser", "--out", str(folder / language))
            kinds = found["kinds"]
            show(
                f"demo --to {language}",
                [
                    Figure("seconds, everything but installation", found["wall"], 150, at_most=True),
                    Figure("training sources", found["n_train"], 15_000),
                    Figure("mean target tokens", found["mean_target"], 8),
                    Figure("unseen sentences", found["n_test"], 500),
                    Figure("exact, all", found["exact_match"], 0.95),
                    *(Figure(f"exact, {kind}", share, 0.85) for kind, share in kinds.items()),
                    Figure("ambiguous words", found["ambiguous"], 0.97),
                    Figure("it", found["it"], 0.95),
                    Figure("cross-attention on the right word", found["alignment"], 0.95),
                ],
            )

    within(measure)


@app.command
def shakespeare(*, data: Data = Path("../shared/data")) -> None:
    """tinyshakespeare by characters, 4 layers x 128 x context 64, three minutes with start-up."""

    def measure(folder: Path) -> None:
        found = clearhead(
            "train", "shakespeare", "--data.folder", str(data / "tinyshakespeare"), "--out", f"{folder}/run"
        )
        seconds = Figure("seconds with start-up and evaluation", found["wall"], 180, at_most=True)
        show("tinyshakespeare", [Figure("validation loss", found["loss"], 1.65, at_most=True), seconds])

    within(measure)


@app.command
def multi30k(*, data: Data = Path("../shared/data")) -> None:
    """Multi30k English to German, test2016, in 60 minutes."""

    def measure(folder: Path) -> None:
        run = folder / "run"
        trained = clearhead("train", "multi30k", "--data.folder", str(data / "multi30k"), "--out", str(run))
        found = clearhead("evaluate", str(run), "--beams", "5", "--moses", "de")
        minutes = (trained["wall"] + found["wall"]) / 60
        show(
            "Multi30k en-de, test2016, beam 5, checkpoint chosen on validation",
            [
                Figure("BLEU, Moses-tokenised, lowercased", found["bleu_moses_lower"], 38),
                Figure("BLEU, cased sacreBLEU (reported only)", found["bleu"], 0),
                Figure("minutes, training and test", minutes, 60, at_most=True),
            ],
        )

    within(measure)


if __name__ == "__main__":
    run_command(app)
