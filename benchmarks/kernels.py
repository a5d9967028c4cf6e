"""`python -m benchmarks.kernels`: products by size and by order of the matrix, and two forms of attention."""

import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from cyclopts import App

from benchmarks.contestants.contestant import peak_gb
from benchmarks.entry import run_command
from benchmarks.racing.machine import Machine
from clearhead.config import StackConfig, TokenInput
from clearhead.model import Tokens
from clearhead.model.attention import Attention, Kernel
from clearhead.model.fast.autotune import Run, time_each
from clearhead.model.fast.packing import WAYS
from clearhead.model.layout import round_up
from clearhead.model.transformer import Stack

app = App(
    name="python -m benchmarks.kernels",
    help="Products of each number of rows, or by each order of a matrix, and the two forms of attention, on a CPU.",
)
COPIED = 1 << 24
"""Numbers in the copies of a matrix: more than the processor's cache holds."""
WIDTHS = ((384, 384), (384, 1536), (1536, 384))


def milliseconds(run: Callable[[], object]) -> float:
    """CPU time of one call."""
    began = time.thread_time()
    run()
    return 1e3 * (time.thread_time() - began)


def measure(counts: list[int], d_in: int, d_out: int) -> tuple[list[float], list[float]]:
    """The first and the shortest of three later times of the three products of a training step."""
    weight, bias = torch.randn(d_out, d_in).bfloat16(), torch.randn(d_out).bfloat16()
    first: list[float] = []
    later: list[float] = []
    for n in counts:
        x, gradient = torch.randn(n, d_in).bfloat16(), torch.randn(n, d_out).bfloat16()
        for product in (
            lambda x=x: torch.nn.functional.linear(x, weight, bias),
            lambda g=gradient: g @ weight,
            lambda x=x, g=gradient: g.T @ x,
        ):
            first.append(milliseconds(product))
            later.append(min(milliseconds(product) for _ in range(3)))
    return first, later


@app.command
def products(*, rows: int = 1, threads: int = 1) -> None:
    """Time float32 products of GPT-2 small, by each way of `clearhead.model.fast.packing`; seconds.

    Args:
        rows: Tokens at a time.
        threads: CPU threads.
    """
    torch.set_num_threads(threads)
    print("GB of weights a second:\n")
    print("| matrix |" + "".join(f" {way} |" for way in WAYS), "|---|" + "---:|" * len(WAYS), sep="\n")
    for d_out, d_in in ((768, 768), (2304, 768), (3072, 768), (768, 3072), (50257, 768)):
        copies, x = max(1, COPIED // (d_out * d_in)), torch.ones(rows, d_in)

        def prepared(way: str, size: tuple[int, int] = (d_out, d_in), n: int = copies, x: torch.Tensor = x) -> Run:
            order, product = WAYS[way]
            matrices = [order(torch.ones(size)) for _ in range(n)]
            return lambda: [product(x, matrix, None) for matrix in matrices]

        taken = time_each({way: prepared(way) for way in WAYS})
        gigabytes = 4e-9 * copies * d_out * d_in
        print(f"| {d_out} x {d_in} |" + "".join(f" {gigabytes / taken[way]:.1f} |" for way in WAYS))
    print(f"\n{Machine.now(threads)}")


@app.command
def attention(*, rows: int = 2048, rounds: int = 9) -> None:
    """Time a layer of width 768 with 12 heads, its attention step by step and fused; a minute.

    Args:
        rows: Tokens at a time, in texts of each length.
        rounds: Turns of each form, of which the shortest counts.
    """
    torch.set_num_threads(1)
    kernels: tuple[Kernel, Kernel] = ("explicit", "fused")
    print("| tokens a text | order | explicit, ms | fused, ms | ratio |\n|---:|---|---:|---:|---:|")
    config = StackConfig(input=TokenInput(vocab_size=100), d_model=768, n_layers=1, n_heads=12, d_ff=64)
    for causal in (True, False):
        stack = Stack(config, causal=causal, cross=False).eval()
        (layer,) = (one for one in stack.modules() if isinstance(one, Attention))
        for length in (16, 32, 64, 128, 256, 512):
            run = partial(stack, Tokens(torch.randint(100, (rows // length, length))))
            taken: dict[Kernel, list[float]] = {kernel: [] for kernel in kernels}
            for _ in range(rounds):
                for kernel in kernels:
                    layer.kernel = kernel
                    with torch.inference_mode():
                        taken[kernel].append(milliseconds(run))
            each = [min(taken[kernel][1:]) for kernel in kernels]
            order = "causal" if causal else "both ways"
            print(f"| {length} | {order} | {each[0]:.1f} | {each[1]:.1f} | {each[0] / each[1]:.2f} |")
    print(f"\n{Machine.now(1)}")


@app.default
def main(*, counts: int = 60, start: int = 640) -> None:
    """Time bfloat16 products of widths 384 and 1,536; half a minute.

    Args:
        counts: Numbers of rows, one after another.
        start: The first of them.
    """
    torch.set_num_threads(1)
    numbers = [*range(start, start + counts)]
    print("| product | first, ms | again, ms | peak memory a kernel, MB |\n|---|---:|---:|---:|")
    for d_in, d_out in WIDTHS:
        before = peak_gb()
        first, later = measure(numbers, d_in, d_out)
        each = 1e3 * (peak_gb() - before) / len(first)
        print(f"| n x {d_in} by {d_in} x {d_out} | {median(first):.1f} | {median(later):.1f} | {each:.2f} |")
    print(f"\n{counts} numbers of rows are {len({*map(round_up, numbers)})} when packed. {Machine.now(1)}")


if __name__ == "__main__":
    run_command(app)
