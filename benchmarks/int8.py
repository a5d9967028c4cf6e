"""`python -m benchmarks.int8 FOLDER`: what 8 and 4 bits cost a trained language model, and the time of one product."""

import time
from collections.abc import Callable
from statistics import median
from typing import Annotated

import torch
import torch.nn.functional as F
from cyclopts import App, Parameter
from torch import Tensor, nn

import clearhead
from benchmarks.entry import run_command
from benchmarks.racing.machine import Machine
from clearhead.generation import complete
from clearhead.model import Transformer
from clearhead.model.fast.grouped import GroupedLinear
from clearhead.model.fast.int4 import Int4Linear, has_kernel
from clearhead.model.fast.int8 import Float32Rows, RoundedRows, round_tables, sums_are_exact
from clearhead.model.linear import LEVELS, TINY, LinearMap, replace
from clearhead.recipe.generation import GenerationConfig

app = App(
    name="python -m benchmarks.int8",
    help="What eight and four bits cost a trained language model, and one product's time.",
)


class Simulated(LinearMap):
    """x W^T + b with both rounded to so many levels on each side of 0, in float32."""

    def __init__(self, linear: nn.Linear, *, weights: int, rows: int) -> None:
        super().__init__(linear.in_features, linear.out_features, linear.bias)
        self.weight, self.rows = _rounded(linear.weight.detach().float(), weights), rows

    def effective_weight(self) -> Tensor:
        return self.weight

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(_rounded(x, self.rows), self.weight, self.bias)


def _rounded(x: Tensor, levels: int) -> Tensor:
    scale = (x.abs().amax(-1, keepdim=True) / levels).clamp_min(TINY)
    return (x / scale).round() * scale


TABLE = ", token table in 8 bits"
KINDS: dict[str, Callable[[nn.Linear], LinearMap | None]] = {
    f"float32{TABLE}": lambda _: None,
    "rows of 127 levels": lambda linear: Simulated(linear, weights=LEVELS, rows=LEVELS),
    f"rows of 127 levels{TABLE}": lambda linear: Simulated(linear, weights=LEVELS, rows=LEVELS),
    "rows in float32": Float32Rows,
    f"rows in float32{TABLE}": Float32Rows,
    "rows of 63 levels": lambda linear: Simulated(linear, weights=LEVELS, rows=63),
    "weights of 63 levels": lambda linear: Simulated(linear, weights=63, rows=LEVELS),
    "4 bits around 0": lambda linear: GroupedLinear(linear, 4),
    **({"4 bits": Int4Linear, f"4 bits{TABLE}": Int4Linear} if has_kernel() else {}),
}


@app.default
def main(folder: str, *, n_stories: Annotated[int, Parameter(help="Texts of 200 tokens.")] = 8) -> None:
    """Score a model's own stories with each kind of rounding; time a 768 x 2304 product on this processor."""
    torch.set_num_threads(1)
    machine = Machine.now(1)
    print(f"{machine.processor}, {machine.environment}; sums of eight-bit products are exact: {sums_are_exact()}")
    exact = clearhead.load(folder, dtype="float32").network
    drawn = GenerationConfig(max_new_tokens=200, temperature=1.0, n_best=n_stories, seed=3, end_ids=(2,))
    [stories] = complete(exact, [[1]], config=drawn)
    texts = [torch.tensor([[1, *story.tokens]]) for story in stories]
    base, _, _ = _scored(exact, exact, texts)
    print(f"{'float32':42} loss {base:.4f}")
    for name, kind in KINDS.items():
        network = clearhead.load(folder, dtype="float32").network
        replace(network, kind)
        if name.endswith(TABLE):
            round_tables(network, torch.float32)
        loss, same, kl = _scored(exact, network, texts)
        print(f"{name:42} loss {loss:.4f} ({loss / base - 1:+.2%})  likeliest the same {same:.1%}  KL {kl:.4f}")
    linear = nn.Linear(768, 2304)
    products: dict[str, nn.Module] = {"float32": linear, "rows in float32": Float32Rows(linear)}
    products["rows of 127 levels" if sums_are_exact() else "rows of 127 levels (sums overflow)"] = RoundedRows(linear)
    if has_kernel():
        products["4 bits"] = Int4Linear(linear)
    for n_rows in (1, 8, 64):
        x = torch.randn(n_rows, 768)
        found = {name: _microseconds(lambda product=product, x=x: product(x)) for name, product in products.items()}
        print(f"{n_rows:3} rows:", ", ".join(f"{name} {took:.0f} us" for name, took in found.items()))


@torch.inference_mode()
def _scored(exact: Transformer, network: Transformer, texts: list[Tensor]) -> tuple[float, float, float]:
    """Loss in nats a token, share of equal likeliest tokens, and KL divergence from the exact network."""
    loss, same, divergence, n = 0.0, 0, 0.0, 0
    for ids in texts:
        wanted, found = exact(ids)[0, :-1], network(ids)[0, :-1]
        loss += F.cross_entropy(found, ids[0, 1:], reduction="sum").item()
        same += int((wanted.argmax(-1) == found.argmax(-1)).sum())
        logs = found.log_softmax(-1), wanted.log_softmax(-1)
        divergence += F.kl_div(*logs, log_target=True, reduction="sum").item()
        n += len(found)
    return loss / n, same / n, divergence / n


@torch.inference_mode()
def _microseconds(run: Callable[[], object]) -> float:
    taken: list[float] = []
    for _ in range(30):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return 1e6 * median(taken)


if __name__ == "__main__":
    run_command(app)
