"""`python -m benchmarks.loading`: memory and CPU time of opening a checkpoint, against the reference library."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import torch
from cyclopts import App

from benchmarks.entry import run_command
from benchmarks.figures import Figure, show, within
from clearhead.api import Model
from clearhead.checkpoints.families import family_of, preset
from clearhead.config import ModelConfig
from clearhead.model import Transformer
from clearhead.storage.manifest import MANIFEST

MEMORY, TIME = 1.15, 0.4
SIDES = ("clearhead", "transformers")
SIZES = ("d_model", "n_layers", "n_heads", "d_ff")
# Name, type and sizes of a preset: 500 MB in each type.
MIDDLE = (
    ("llama-tiny", torch.float32, (768, 14, 12, 2048)),
    ("llama-tiny", torch.bfloat16, (768, 32, 12, 2048)),
    ("gpt2", torch.float32, (768, 12, 12, 3072)),
    ("gpt2", torch.bfloat16, (1024, 16, 16, 4096)),
)
QUICK = (32, 2, 2, 64)
LARGE = "llama-3.2-1b, bfloat16"
LLAMA_3_2_1B: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128_256,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 131_072,
    "tie_word_embeddings": True,
    "rope_theta": 500_000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}
"""The published config of that model: 1.24 billion parameters, 2.5 GB."""

app = App(
    name="python -m benchmarks.loading",
    help="Opening a checkpoint: memory, and time to a first answer, against theirs.",
)


def checkpoints(*, quick: bool) -> dict[str, tuple[ModelConfig, torch.dtype]]:
    """Each checkpoint's architecture and type of weights, by title; tiny ones with `quick`."""
    found: dict[str, tuple[ModelConfig, torch.dtype]] = {}
    for name, dtype, size in MIDDLE:
        config = preset(name)
        changes = dict(zip(SIZES, QUICK if quick else size, strict=True))
        found[f"{name}, {dtype}".replace("torch.", "")] = in_size(config, changes), dtype
    config, _ = family_of(LLAMA_3_2_1B, where=LARGE).read(LLAMA_3_2_1B, where=LARGE)
    tiny = dict(zip(SIZES, QUICK, strict=True)) | {"n_kv_heads": 1}
    found[LARGE] = in_size(config, tiny if quick else {}), torch.bfloat16
    return found


def in_size(config: ModelConfig, changes: dict[str, int]) -> ModelConfig:
    """A decoder with other sizes."""
    assert config.decoder is not None
    return config.model_copy(update={"decoder": config.decoder.model_copy(update=changes)})


def network(config: ModelConfig, dtype: torch.dtype) -> Transformer:
    """The network with random weights, drawn in this type: a large one in float32 would take twice the memory."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        return Transformer(config)
    finally:
        torch.set_default_dtype(before)


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
    """The figures of one checkpoint. Memory is what is resident beyond the imports, mapped files included."""
    n_bytes = (folder / "model.safetensors").stat().st_size
    found = race(folder, rounds)

    def middle(side: str, name: str) -> float:
        return median(float(start[name]) for start in found[side])

    for side in SIDES:
        memory = ", ".join(f"{name} {middle(side, name) / n_bytes:.3f}" for name in ("loaded", "said"))
        times = f"{middle(side, 'cpu'):.2f} CPU s, {middle(side, 'seconds'):.2f} s"
        print(f"{title}, {n_bytes / 1e6:.0f} MB, {side}: {times}; memory / weights: {memory}", flush=True)
    memory = Figure(
        f"{title}: peak memory to the first token / weights",
        middle("clearhead", "said") / n_bytes,
        MEMORY,
        at_most=True,
    )
    ratio = middle("clearhead", "cpu") / middle("transformers", "cpu")
    # The time of the large one is that of its products, which are the same on both sides.
    return [memory] if title == LARGE else [memory, Figure(f"{title}: CPU time / theirs", ratio, TIME, at_most=True)]


@app.default
def loading(*, only: str = "", rounds: int = 5, quick: bool = False) -> None:
    """Open Llama's and GPT-2's layouts in float32 and bfloat16, and Llama-3.2-1B, each time in a fresh process.

    Parameters
    ----------
    only: Of the checkpoints, those whose title contains this, such as llama-3.2-1b.
    rounds: Cold starts of each side, of which the median counts.
    quick: A tiny checkpoint, to see that everything works; its figures mean nothing.
    """

    def measure(scratch: Path) -> None:
        figures: list[Figure] = []
        for title, (config, dtype) in checkpoints(quick=quick).items():
            if only not in title:
                continue
            folder = Model(network(config, dtype)).save(scratch / title.replace(", ", "-"))
            (folder / MANIFEST).unlink()  # which only our own folders have, and whose sums are checked
            figures += measured(title, folder, rounds)
            shutil.rmtree(folder)
        if not quick:
            show("Opening a checkpoint", figures)

    within(measure)


if __name__ == "__main__":
    run_command(app)
