"""`python -m benchmarks.loading`: memory and CPU time of opening a checkpoint, against the reference library."""

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import torch
from cyclopts import App

from benchmarks.figures import Figure, show, within
from clearhead.api import Model
from clearhead.config import ModelConfig
from clearhead.families import preset
from clearhead.model import Transformer
from clearhead.storage.manifest import MANIFEST

MEMORY, TIME = 1.15, 0.4
SIDES = ("clearhead", "transformers")
# d_model, n_layers, n_heads, d_ff: 500 MB in each type.
SIZES = {
    ("llama-tiny", torch.float32): (768, 14, 12, 2048),
    ("llama-tiny", torch.bfloat16): (768, 32, 12, 2048),
    ("gpt2", torch.float32): (768, 12, 12, 3072),
    ("gpt2", torch.bfloat16): (1024, 16, 16, 4096),
}
QUICK = (32, 2, 2, 64)

app = App(
    name="python -m benchmarks.loading", help="Opening a 500 MB checkpoint: memory, and CPU time to a first answer."
)


def network(name: str, dtype: torch.dtype, size: tuple[int, int, int, int]) -> Transformer:
    """A preset in another size, its weights drawn at random."""
    config = preset(name)
    assert config.decoder is not None
    stack = config.decoder.model_copy(update=dict(zip(("d_model", "n_layers", "n_heads", "d_ff"), size, strict=True)))
    return Transformer(ModelConfig(decoder=stack, head=config.head)).to(dtype)


def opened(side: str, folder: Path) -> dict[str, Any]:
    """The figures of one cold start."""
    command = [sys.executable, "-m", "benchmarks.contestants.opening", side, str(folder)]
    # Compiled modules are kept, as on any machine where Python may write them.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def race(folder: Path, rounds: int) -> dict[str, list[dict[str, Any]]]:
    """Cold starts of both, in turn, after one of each that does not count."""
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    for side in SIDES:
        opened(side, folder)
    for i in range(rounds):
        for side in SIDES if i % 2 == 0 else reversed(SIDES):
            found[side].append(opened(side, folder))
    return found


def measured(title: str, folder: Path, rounds: int) -> list[Figure]:
    """The figures of one checkpoint."""
    n_bytes = (folder / "model.safetensors").stat().st_size
    found = race(folder, rounds)

    def middle(side: str, name: str) -> float:
        return median(float(start[name]) for start in found[side])

    for side in SIDES:
        memory = ", ".join(f"{name} {middle(side, name) / n_bytes:.2f}" for name in ("loaded", "said"))
        print(f"{title}, {n_bytes / 1e6:.0f} MB, {side}: {middle(side, 'cpu'):.2f} CPU s; memory / weights: {memory}")
    return [
        Figure(f"{title}: peak memory / weights", middle("clearhead", "loaded") / n_bytes, MEMORY, at_most=True),
        Figure(
            f"{title}: CPU time / theirs",
            middle("clearhead", "cpu") / middle("transformers", "cpu"),
            TIME,
            at_most=True,
        ),
    ]


@app.default
def loading(*, rounds: int = 5, quick: bool = False) -> None:
    """Open Llama's and GPT-2's layouts in float32 and bfloat16, each time in a fresh process.

    Parameters
    ----------
    rounds: Cold starts of each side, of which the median counts.
    quick: A tiny checkpoint, to see that everything works; its figures mean nothing.
    """

    def measure(scratch: Path) -> None:
        figures: list[Figure] = []
        for (name, dtype), size in SIZES.items():
            title = f"{name}, {dtype}".replace("torch.", "")
            folder = Model(network(name, dtype, QUICK if quick else size)).save(scratch / title.replace(", ", "-"))
            (folder / MANIFEST).unlink()  # which only our own folders have, and whose sums are checked
            figures += measured(title, folder, rounds)
        if not quick:
            show("Opening a checkpoint", figures)

    within(measure)


if __name__ == "__main__":
    app()
