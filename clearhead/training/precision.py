"""The start-up probe: which arithmetic is the fastest for this network on this machine, and accurate all the same.

At small widths both levers lose: bfloat16 and oneDNN's float32 products are worth it only where products are large
(docs/benchmarks.md), so they are tried, never looked up by the name of a processor.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import nn

from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.model.mode import Evaluating
from clearhead.recipe.training import MatmulPrecision, Training
from clearhead.tasks.task import Batch, Task
from clearhead.training.randomness import generator
from clearhead.training.ranks import ALONE, Ranks

TOLERANCE = 0.02
"""Relative difference of the first loss up to which bfloat16 is trusted."""
ROUNDING = 1e-6
"""Relative error of a product up to which it counts as float32's; or twice that of the default, if that is more."""
ROWS = 256
COLUMNS = 1024
HOPELESS = 1.5
"""Times the fastest first try: what takes longer is not tried again."""


@dataclass(frozen=True)
class Arithmetic:
    """What a training step computes in."""

    precision: str
    """fp32, or bf16: products in bfloat16 by autocast, weights and sums in float32."""
    matmul: MatmulPrecision = "highest"
    """PyTorch's float32_matmul_precision."""

    def __str__(self) -> str:
        return self.precision if self.precision == "bf16" or self.matmul == "highest" else f"fp32 ({self.matmul})"

    def autocast(self, device: torch.device) -> AbstractContextManager[object]:
        """For a forward pass."""
        return torch.autocast(device.type, torch.bfloat16) if self.precision == "bf16" else nullcontext()

    @contextmanager
    def products(self) -> Iterator[None]:
        """float32 products so meanwhile, in the whole process; afterwards as before."""
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(self.matmul)
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)


@dataclass(frozen=True)
class Choice:
    """The arithmetic that was chosen, and why."""

    arithmetic: Arithmetic
    why: str


def choose(network: Transformer, batch: Batch, config: Training, task: Task, ranks: Ranks = ALONE) -> Choice:
    """The precision asked for; for auto the fastest on a batch whose numbers agree, forward and backward.

    Processes that share a network make the same passes, and the first one's figures count.
    """
    device, why = batch.labels.device, list[str]()
    only_bf16 = config.precision == "bf16" or config.weights == "bf16"
    kinds: list[MatmulPrecision] = ["highest"]
    if config.matmul_precision == "auto":
        if not only_bf16:
            kinds = ranks.first(accurate(network, device, why))
    else:
        kinds = [config.matmul_precision]
    candidates = [] if only_bf16 else [Arithmetic("fp32", kind) for kind in kinds]
    if config.precision != "fp32":
        candidates.append(Arithmetic("bf16", kinds[0]))
    if len(candidates) == 1:
        return Choice(candidates[0], "; ".join([*why, "nothing to choose"]))
    with Evaluating(network):
        seconds, losses = _tried(network, batch, task, candidates, hopeless=HOPELESS if ranks.size == 1 else math.inf)
    return ranks.first(ranks.together(lambda: _fastest(seconds, losses, why)))


def _fastest(seconds: dict[Arithmetic, float], losses: dict[Arithmetic, float], why: list[str]) -> Choice:
    """Of those whose loss is that of the first."""
    exact = next(iter(losses.values()))
    for arithmetic, loss in losses.items():
        if not abs(loss - exact) <= TOLERANCE * abs(exact):
            del seconds[arithmetic]
            why.append(f"{arithmetic} gives another loss, {loss:.4g} for {exact:.4g}")
    if not seconds:
        raise UserError(f"training: expected a finite loss on the first batch, got {exact}; try another model.init")
    best = min(seconds, key=lambda one: seconds[one])
    times = ", ".join(f"{one} {1000 * taken:.0f} ms" for one, taken in seconds.items())
    return Choice(best, "; ".join([f"forward and backward of the first batch: {times}", *why]))


def accurate(network: nn.Module, device: torch.device, why: list[str]) -> list[MatmulPrecision]:
    """`highest`, and `medium` where products of this network's shapes then have float32's accuracy all the same.

    On CPUs without matrix units `medium` lets oneDNN choose a kernel, which is float32's but quicker; on others it is
    bfloat16, with a thousand times the error.
    """
    errors: dict[MatmulPrecision, float] = {"highest": 0.0, "medium": 0.0}
    shapes = {m.weight.shape for m in network.modules() if isinstance(m, nn.Linear)}
    for out, width in sorted(shapes, key=lambda shape: -shape.numel())[:4]:
        draw = generator("probe", out, width)
        a = torch.randn(ROWS, width, generator=draw).to(device)
        b = torch.randn(width, min(out, COLUMNS), generator=draw).to(device)
        exact = a.double() @ b.double() if device.type != "mps" else (a.cpu().double() @ b.cpu().double()).to(device)
        for kind, worst in errors.items():
            with Arithmetic("fp32", kind).products():
                error = float((a @ b - exact).norm() / exact.norm())
            errors[kind] = max(worst, error)
    if errors["medium"] <= max(2 * errors["highest"], ROUNDING):
        return ["highest", "medium"]
    why.append(f"fp32 (medium) is not float32 here: error {errors['medium']:.1e} against {errors['highest']:.1e}")
    return ["highest"]


def quickest(network: nn.Module, device: torch.device, run: Callable[[], object]) -> Arithmetic:
    """The float32 in which `run`, a forward pass, is quickest and accurate all the same."""
    candidates = [Arithmetic("fp32", kind) for kind in accurate(network, device, [])]
    seconds: dict[Arithmetic, float] = {}
    for arithmetic in candidates * 2 if len(candidates) > 1 else ():
        start = time.perf_counter()
        with arithmetic.products():
            run()
            _wait(device)
        taken = time.perf_counter() - start
        seconds[arithmetic] = min(seconds.get(arithmetic, taken), taken)
    return min(seconds, key=lambda one: seconds[one], default=candidates[0])


def _tried(
    network: Transformer, batch: Batch, task: Task, candidates: list[Arithmetic], *, hopeless: float
) -> tuple[dict[Arithmetic, float], dict[Arithmetic, float]]:
    """Least seconds and the mean loss of each, in two rounds; the network is left as it was."""
    device = batch.labels.device
    seconds: dict[Arithmetic, float] = {}
    losses: dict[Arithmetic, float] = {}
    first: dict[Arithmetic, float] = {}
    for is_second in (False, True):
        for arithmetic in candidates:
            if is_second and first[arithmetic] > hopeless * min(first.values()) and len(candidates) > 2:
                continue
            _wait(device)
            start = time.perf_counter()
            with arithmetic.products():
                with arithmetic.autocast(device):
                    total, count = task.loss(network, batch)
                (total / count).backward()
                losses[arithmetic] = total.item() / count
                _wait(device)
            taken = time.perf_counter() - start
            first.setdefault(arithmetic, taken)
            seconds[arithmetic] = min(seconds.get(arithmetic, taken), taken)
            network.zero_grad(set_to_none=True)
    return seconds, losses


def _wait(device: torch.device) -> None:
    """Until the device has done what it was given: a clock must not measure what came before."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
