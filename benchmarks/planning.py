"""`python -m benchmarks.planning`: what `clearhead plan` reckons against what is measured here: memory, and time."""

import time
from statistics import median

import torch
import torch.nn.functional as F
from cyclopts import App
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.distributed._tools.mem_tracker import MemTracker

from benchmarks.entry import run_command
from benchmarks.racing.machine import Machine
from clearhead import config as c
from clearhead.model import Transformer
from clearhead.recipe.training import AdamW
from clearhead.training.optimizers import build
from clearhead.training.planning.memory import Activations, Network, Setting, Shape, memory_of

VOCAB = 2000
# d_model, layers, heads, d_ff, rows, positions
SIZES = {
    "narrow": (64, 2, 4, 256, 8, 64),
    "wide": (256, 2, 4, 1024, 8, 64),
    "deep": (128, 6, 4, 512, 8, 64),
    "long": (128, 2, 4, 512, 2, 256),
    "dropout": (128, 2, 4, 512, 8, 64),
}
ROUNDS = 7

app = App(name="python -m benchmarks.planning", help="The cost model against small runs on this machine.")


def config_of(name: str, *, pairs: bool) -> c.ModelConfig:
    """A decoder of this size, or an encoder and a decoder."""
    d_model, n_layers, n_heads, d_ff, _, _ = SIZES[name]
    drops = 0.1 if name == "dropout" else 0.0
    stack = c.StackConfig(
        input=c.TokenInput(vocab_size=VOCAB),
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        d_ff=d_ff,
        positions=c.Sinusoidal(),
        dropout=drops,
        attn_dropout=drops,
        ffn_dropout=drops,
    )
    return c.ModelConfig(encoder=stack if pairs else None, decoder=stack)


def shape_of(name: str, *, pairs: bool) -> Shape:
    """The batch that goes with it."""
    *_, rows, length = SIZES[name]
    return Shape(rows, source=length if pairs else 0, target=length)


class Trained:
    """A network that has made a step, with its optimizer's state."""

    def __init__(self, name: str, *, pairs: bool, mixed: bool) -> None:
        torch.manual_seed(0)
        self.config, self.shape, self.mixed = config_of(name, pairs=pairs), shape_of(name, pairs=pairs), mixed
        self.network = Transformer(self.config).train()
        self.optimizer = build(self.network, AdamW())
        self.step()

    def loss(self) -> Tensor:
        """On random tokens, from all logits at once."""
        ids = [torch.randint(VOCAB, (self.shape.rows, n)) for n in (self.shape.source, self.shape.target) if n]
        with torch.autocast("cpu", torch.bfloat16, enabled=self.mixed):
            logits = self.network(*ids).flatten(0, 1)
        return F.cross_entropy(logits.float(), ids[-1].flatten())  # as the network does for few logits

    def step(self) -> None:
        """One update."""
        self.loss().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def saved(self) -> int:
        """Bytes that autograd saves, weights left out."""
        weights = {parameter.untyped_storage().data_ptr() for parameter in self.network.parameters()}
        found: dict[int, Tensor] = {}

        def pack(x: Tensor) -> Tensor:
            if x.is_floating_point():
                found[x.untyped_storage().data_ptr()] = x
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            self.loss()
        return sum(x.untyped_storage().nbytes() for address, x in found.items() if address not in weights)

    def peak(self) -> int:
        """Bytes of tensors at the worst moment of a step."""
        tracker = MemTracker()
        tracker.track_external(self.network, *self.optimizer.state_tensors().values())
        with tracker:
            self.step()
        return tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]

    def predicted(self) -> tuple[int, int, int]:
        """The same two figures on paper, and the FLOPs of a step."""
        setting = Setting(mixed=self.mixed, chunked=False)
        network = Network(self.config)
        kept = Activations.of(network, self.shape, setting)
        saved = kept.kept(setting) + kept.logits + (2 * network.linear if self.mixed else 0)
        peak = memory_of(network, self.shape, setting, optimizer=AdamW()).total
        flops = 3 * self.shape.rows * sum(part.cost.flops for part in network.parts(self.shape, setting))
        return saved, peak, flops


@app.default
def main(*, rounds: int = ROUNDS) -> None:
    """Print two tables: bytes saved and at the worst moment, and times of a step.

    Args:
        rounds: Steps of each configuration, interleaved.
    """
    console = Console(width=140)
    runs = {
        (name, pairs, mixed): Trained(name, pairs=pairs, mixed=mixed)
        for name in SIZES
        for pairs in (False, True)
        for mixed in (False, True)
    }
    titles = ("saved, MB", "predicted", "ratio", "worst moment, MB", "predicted", "ratio")
    table = Table("network", "precision", *titles, title="Memory of a training step")
    for (name, pairs, mixed), run in runs.items():
        saved, peak, _ = run.predicted()
        both = ((run.saved(), saved), (run.peak(), peak))
        cells = [cell for seen, said in both for cell in (_mb(seen), _mb(said), f"{said / seen:.3f}")]
        table.add_row(_name(name, pairs=pairs), _precision(mixed=mixed), *cells)
    console.print(table)
    seconds: dict[tuple[str, bool, bool], list[float]] = {key: [] for key in runs}
    for _ in range(rounds):
        for key, run in runs.items():
            start = time.perf_counter()
            run.step()
            seconds[key].append(time.perf_counter() - start)
    table = Table("network", "precision", "GFLOP", "ms", "GFLOP/s", title=f"Time of a step, median of {rounds}")
    for (name, pairs, mixed), run in runs.items():
        flops, taken = run.predicted()[2], median(seconds[name, pairs, mixed])
        cells = (f"{flops / 1e9:.2f}", f"{1000 * taken:.1f}", f"{flops / taken / 1e9:.0f}")
        table.add_row(_name(name, pairs=pairs), _precision(mixed=mixed), *cells)
    console.print(table)
    machine = Machine.now(None)
    console.print(f"{machine.processor}, {machine.threads} threads, torch {machine.torch}, load {machine.load}")


def _name(name: str, *, pairs: bool) -> str:
    return f"{name}, encoder-decoder" if pairs else name


def _precision(*, mixed: bool) -> str:
    return "bf16" if mixed else "fp32"


def _mb(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.2f}"


if __name__ == "__main__":
    run_command(app)
