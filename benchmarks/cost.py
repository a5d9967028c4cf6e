"""`python -m benchmarks.cost`: what a forward and backward pass of the decoder costs, by one of its sizes at a time."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Annotated

import numpy as np
import torch
from cyclopts import App, Parameter
from pydantic import PositiveInt
from torch import Tensor

from benchmarks.contestants.gpt import GptWorkload
from benchmarks.contestants.opening import memory
from benchmarks.contestants.ours import decoder_config
from benchmarks.entry import run_command
from benchmarks.racing import plots
from benchmarks.racing.flops import forward_flops
from benchmarks.racing.machine import Machine
from clearhead.config import Config
from clearhead.errors import UserError
from clearhead.machine.device import keep_freed_memory
from clearhead.model import Tokens, Transformer
from clearhead.recipe.training import Training
from clearhead.training.planning.memory import Network
from clearhead.training.profile import Clock, seconds_of, timed_modules
from clearhead.training.run import set_performance_options

HEAD_WIDTH = 64
SECONDS, AT_LEAST, AT_MOST = 1.5, 2, 15
"""A pass is repeated for so long, and so often."""


class Sizes(Config):
    """One decoder and its batch; 6 layers, heads of 64."""

    length: PositiveInt = 256
    width: PositiveInt = 256
    batch: PositiveInt = 4
    vocabulary: PositiveInt = 8192
    n_layers: PositiveInt = 6

    @property
    def workload(self) -> GptWorkload:
        return GptWorkload(
            length=self.length,
            d_model=self.width,
            n_heads=max(1, self.width // HEAD_WIDTH),
            batch=self.batch,
            vocab_size=self.vocabulary,
            n_layers=self.n_layers,
        )


class Cost(Config):
    """Of one forward and backward pass."""

    seconds: float
    """Median."""
    spread: float
    """Slowest less fastest, as a share of the median."""
    peak_mb: float
    """Most memory above the weights and their gradients."""
    attention: float
    """Share of the forward pass's time that goes into scores, softmax and the weighted sum of values."""
    gflop: float
    """On paper: of matrix products."""


BASE = Sizes()
VALUES: dict[str, tuple[int, ...]] = {
    "length": (64, 128, 256, 512, 1024, 2048, 4096),
    "width": (64, 128, 256, 512, 1024),
    "batch": (1, 2, 4, 8, 16, 32),
    "vocabulary": (2048, 8192, 32_768, 131_072),
}
QUICK_BASE = Sizes(length=32, width=64, batch=1, vocabulary=256, n_layers=1)
QUICK_VALUES: dict[str, tuple[int, ...]] = {"length": (32, 128), "width": (64, 128), "batch": (1, 4)}

app = App(name="python -m benchmarks.cost", help="Time and memory of the decoder by length, width, batch, vocabulary.")


def cost(sizes: Sizes) -> Cost:
    """Measured here, in float32, with attention and loss as the product chooses them; meant for a fresh process."""
    torch.manual_seed(0)
    config = decoder_config(sizes.workload)
    network = Transformer(config).train()
    set_performance_options(network, Training(steps=1))
    ids = torch.randint(sizes.vocabulary, (sizes.batch, sizes.length + 1))

    def forward(length: int) -> Tensor:
        labels = ids[:, 1 : length + 1].flatten()
        return network(Tokens(ids[:, :length].clone()), labels=labels) / len(labels)

    def timed() -> float:
        start = time.perf_counter()
        forward(sizes.length).backward()
        return time.perf_counter() - start

    forward(min(16, sizes.length)).backward()  # gradients, and what libraries take once
    before = memory("VmRSS")
    first = timed()  # before it nobody has needed so much memory: what is taken from the system is its own
    peak = max(memory("VmHWM") - before, 1)
    times = [timed() for _ in range(min(AT_MOST, max(AT_LEAST, round(SECONDS / first))))]
    return Cost(
        seconds=median(times),
        spread=(max(times) - min(times)) / median(times),
        peak_mb=peak / 1e6,
        attention=median(_attention(network, lambda: forward(sizes.length)) for _ in range(AT_LEAST)),
        gflop=3 * sizes.batch * forward_flops(Network(config), 0, sizes.length) / 1e9,
    )


def _attention(network: Transformer, run: Callable[[], object]) -> float:
    """Share of a forward pass, by the hooks of `clearhead profile`."""
    clock = Clock(torch.device("cpu"))
    with timed_modules(network, clock), clock.span("forward"):
        run()
    seconds = clock.seconds()
    return seconds_of(seconds, "attention scores, softmax, values") / seconds["forward"]


def measured(sizes: Sizes, threads: int) -> Cost:
    """The same in a process of its own, for its memory."""
    command = [sys.executable, "-m", "benchmarks.cost", "one", sizes.model_dump_json(), str(threads)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, cwd=Path(__file__).parents[1])
    if done.returncode:
        raise UserError(f"{sizes}: its process ended with code {done.returncode}; see its error above")
    return Cost.model_validate_json(done.stdout)


@app.command(show=False)
def one(sizes: str, threads: int) -> None:
    """Print one cost as JSON."""
    torch.set_num_threads(threads)
    keep_freed_memory()
    print(cost(Sizes.model_validate_json(sizes)).model_dump_json())


QUANTITIES: Mapping[str, Callable[[Cost], float]] = {
    "time": lambda one: one.seconds,
    "memory": lambda one: one.peak_mb,
    "FLOPs": lambda one: one.gflop,
}


def exponent(costs: Mapping[int, Cost], quantity: str) -> tuple[float, float]:
    """k of quantity = c * factor^k: over all values (least squares of logarithms), and between the last two."""
    x, y = np.log(list(costs)), np.log([QUANTITIES[quantity](one) for one in costs.values()])
    return float(np.polyfit(x, y, 1)[0]), float((y[-1] - y[-2]) / (x[-1] - x[-2]))


def table(factor: str, costs: Mapping[int, Cost]) -> str:
    """Costs by one factor, and their exponents, in Markdown."""
    rows = [
        f"| {value:,} | {1000 * one.seconds:,.1f} | {one.spread:.0%} | {one.gflop:,.1f}"
        f" | {one.gflop / one.seconds:,.0f} | {one.peak_mb:,.0f} | {one.attention:.0%} |"
        for value, one in costs.items()
    ]
    exponents = [(name, *exponent(costs, name)) for name in QUANTITIES]
    said = "; ".join(f"{name} ~ {factor}^{k:.2f} (last two {end:.2f})" for name, k, end in exponents)
    head = f"| {factor} | ms | spread | GFLOP | GFLOP/s | peak MB | attention, of forward |"
    return "\n".join([head, "|---:|---:|---:|---:|---:|---:|---:|", *rows, "", f"{said}."])


def panels(factor: str, costs: Mapping[int, Cost]) -> list[plots.Panel]:
    """What is drawn: time, memory, and attention's share."""

    def power(quantity: str, unit: str, y: list[float]) -> plots.Panel:
        _, end = exponent(costs, quantity)
        return plots.Panel(f"{quantity}: at the end as {factor}^{end:.2f}", unit, y, end)

    every = costs.values()
    return [
        power("time", "milliseconds", [1000 * one.seconds for one in every]),
        power("memory", "MB above weights and gradients", [one.peak_mb for one in every]),
        plots.Panel("attention's share of the forward pass", "%", [100 * one.attention for one in every]),
    ]


@app.default
def main(
    *,
    quick: Annotated[bool, Parameter(negative="")] = False,
    out: Path | None = None,
    threads: int | None = None,
) -> None:
    """Vary one size at a time, each point in a process of its own: four tables, and with --out four plots.

    The decoder has 6 layers x 256, vocabulary 8192, and trains in float32 on 4 rows of 256 tokens. GFLOP are those of
    matrix products, on paper; attention is the scores, the softmax and the weighted sum, without projections. Four
    minutes on two cores with nothing else to do.

    Args:
        quick: Tiny sizes, to see that everything works; their figures mean nothing.
        out: Folder for cost-length.svg, cost-width.svg, cost-batch.svg and cost-vocabulary.svg.
        threads: CPU threads (default: PyTorch's).
    """
    if out is not None:
        plots.check()
        out.mkdir(parents=True, exist_ok=True)
    machine = Machine.now(threads)
    base = QUICK_BASE if quick else BASE
    at_base: Cost | None = None
    for factor, values in (QUICK_VALUES if quick else VALUES).items():
        costs: dict[int, Cost] = {}
        for value in values:
            sizes = base.model_copy(update={factor: value})
            costs[value] = at_base if sizes == base and at_base else measured(sizes, machine.threads)
            at_base = costs[value] if sizes == base else at_base
            print(f"{factor} {value:,}: {1000 * costs[value].seconds:,.1f} ms", file=sys.stderr)
        print(f"**{factor}**\n\n{table(factor, costs)}\n", flush=True)
        if out is not None:
            path = out / f"cost-{factor}.svg"
            plots.draw(path, factor, list(costs), panels(factor, costs))
            print(path, file=sys.stderr)
    fixed = ", ".join(f"{name} {value:,}" for name, value in base)
    print(f"Where not varied: {fixed}; float32. {machine}" + (" **Quick**: means nothing." if quick else ""))


if __name__ == "__main__":
    run_command(app)
