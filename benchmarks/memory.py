"""`python -m benchmarks.memory`: peak memory of a forward and backward pass by length, above the weights."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Annotated

import torch
from cyclopts import App, Parameter

from benchmarks.contestants.gpt import GptWorkload
from benchmarks.contestants.ours import decoder_config
from benchmarks.entry import run_command
from benchmarks.figures import Figure, show
from clearhead.machine.device import keep_freed_memory
from clearhead.model import Tokens, Transformer
from clearhead.recipe.training import Training
from clearhead.training.run import set_performance_options

LENGTHS = (2048, 4096, 8192)
GROWTH = 2.1
"""At most, from one length to twice that."""
PAGE = os.sysconf("SC_PAGE_SIZE")
VARIANTS: dict[str, dict[str, str | bool]] = {
    "fused": {},
    "fused, recomputing blocks": {"checkpoint_activations": True},
    "fused, all logits at once": {"chunked_loss": False},
    "explicit": {"attention": "explicit"},
}

app = App(name="python -m benchmarks.memory", help="Peak memory of a training pass by length.")


def resident() -> int:
    """Bytes this process holds now."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE


def peak(length: int, variant: str, width: int) -> int:
    """Bytes above the weights and their gradients that one pass over one row of `length` tokens takes at most."""
    keep_freed_memory()
    torch.manual_seed(0)
    workload = GptWorkload(length=length, d_model=width, n_heads=max(1, width // 64))
    network = Transformer(decoder_config(workload)).train()
    set_performance_options(network, Training.model_validate({"steps": 1, **VARIANTS[variant]}))
    ids = torch.randint(workload.vocab_size, (1, length + 1))

    def run(n: int) -> None:
        tokens, labels = Tokens(ids[:, :n].clone()), ids[0, 1 : n + 1]
        (network(tokens, labels=labels) / n).backward()

    run(32)  # Gradients, and what libraries take once.
    before = resident()
    run(length)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before


def measured(length: int, variant: str, width: int) -> int:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.memory", "one", str(length), variant, "--width", str(width)]
    return int(json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout))


@app.command(show=False)
def one(length: int, variant: str, *, width: int) -> None:
    """Print one figure, in bytes."""
    print(peak(length, variant, width))


@app.default
def memory(*, quick: Annotated[bool, Parameter(negative="")] = False, rounds: int = 3) -> None:
    """Forward and backward of the small decoder (6 layers x 384, vocabulary 8192) over one row, in float32.

    Parameters
    ----------
    quick: A narrow network and short rows, to see that everything works; its figures mean nothing.
    rounds: Processes for each figure, of which the median counts.
    """
    lengths, width = ((128, 256), 64) if quick else (LENGTHS, 384)
    found: dict[str, dict[int, float]] = {}
    for variant in VARIANTS:
        # The explicit form keeps length x length numbers a head and layer.
        some = [length for length in lengths if variant != "explicit" or length <= 4096]
        found[variant] = {n: median(measured(n, variant, width) for _ in range(1 if quick else rounds)) for n in some}
        print(variant + ": " + ", ".join(f"{n:,} tokens {size / 1e6:,.0f} MB" for n, size in found[variant].items()))
    if not quick:
        sizes = found["fused"]
        show("Memory", [Figure("8,192 against 4,096 tokens, fused", sizes[8192] / sizes[4096], GROWTH, at_most=True)])


if __name__ == "__main__":
    run_command(app)
