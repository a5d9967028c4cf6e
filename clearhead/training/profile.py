"""The time of a training step by component, and the share of the machine's ceiling that it reaches.

Hooks around modules time the components, so the network runs eagerly. On a GPU they record events in its stream, and
nothing waits for the GPU before the step ends. The backward pass is one figure, because hooks there would change the
order of its computations.
"""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from clearhead.machine.energy import Meter
from clearhead.machine.precision import Arithmetic, timed, wait
from clearhead.model import Transformer
from clearhead.model.attention import Attention
from clearhead.model.block import Block
from clearhead.model.embedding import Embedding
from clearhead.model.norm import Norm
from clearhead.recipe.training import Training
from clearhead.tasks.task import Batch
from clearhead.training.optimizers import build

WARM_UP = 2
"""Steps before the measured ones, in which allocators and kernels settle."""
CEILING_SIZE = {"cpu": 2048}
Loss = Callable[[Transformer, Batch], tuple[Tensor, int]]


Moment = float | torch.Event


def _forward_count(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    return sdpa_flop_count(q, k, v)


def _backward_count(z: Any, q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    return sdpa_backward_flop_count(z, q, k, v)


FUSED: dict[Any, Callable[..., int]] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _forward_count,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _backward_count,
}
"""The fused attention of a CPU, which PyTorch's counter omits."""


@dataclass(frozen=True)
class ComponentTime:
    """A part of a step, summed over its instances."""

    name: str
    seconds: float
    """Median over the steps."""
    flops: int = 0
    """FLOPs of its matrix products."""


@dataclass(frozen=True)
class Profile:
    """A training step; every figure is the median over the steps."""

    components: tuple[ComponentTime, ...]
    seconds: float
    """Seconds of a whole step: a little more or less than the sum of its components."""
    spread: float
    """Slowest step less fastest one, as a share of the median."""
    flops: int
    """FLOPs of the matrix products, forward and backward."""
    flops_per_second: float
    tokens: int
    """Tokens of both stacks, without padding."""
    tokens_per_second: float
    precision: str
    device: str
    ceiling: float
    """FLOPs a second of a large matrix product in this precision."""
    joules: float | None
    """Of a step, the mean; None on a GPU without its watts."""
    energy_by: str
    """The counters, or a rating in watts."""

    @property
    def mfu(self) -> float:
        """Share of the ceiling that a step reaches: its model FLOPs utilisation (Chowdhery et al. 2022, B)."""
        return self.flops_per_second / self.ceiling

    @property
    def largest(self) -> ComponentTime:
        """The component that takes the most time, except for the backward pass."""
        return max((one for one in self.components if one.name != "backward"), key=lambda one: one.seconds)


class Clock:
    """Seconds between moments, on the device that computes."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.spans: dict[str, list[tuple[Moment, Moment]]] = defaultdict(list)

    def now(self) -> Moment:
        """A moment: the time, or an event in the device's stream."""
        if self.device.type == "cpu":
            return time.perf_counter()
        event = torch.Event(self.device, enable_timing=True)
        event.record()
        return event

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Adds the time of the block to this name."""
        start = self.now()
        yield
        self.spans[name].append((start, self.now()))

    def seconds(self) -> dict[str, float]:
        """The sum of the spans of each name, which are then cleared."""
        wait(self.device)
        total = {name: sum(_between(*span) for span in spans) for name, spans in self.spans.items()}
        self.spans.clear()
        return total


def _between(start: Any, end: Any) -> float:
    return start.elapsed_time(end) / 1000 if isinstance(start, torch.Event) else end - start


@contextmanager
def timed_modules(network: Transformer, clock: Clock) -> Iterator[None]:
    """Time the forward pass of each module under its kind."""
    began: list[Moment] = []

    def enter(*_: object) -> None:
        began.append(clock.now())

    def leave(name: str, *_: object) -> None:
        clock.spans[name].append((began.pop(), clock.now()))

    with ExitStack() as stack:
        for name, module in kinds(network):
            stack.enter_context(module.register_forward_pre_hook(enter))
            stack.enter_context(module.register_forward_hook(partial(leave, name)))
        yield


def kinds(network: Transformer) -> Iterator[tuple[str, nn.Module]]:
    """The kind of each timed module, and the module. Those inside attention are a part of it."""
    for stack in filter(None, (network.encoder, network.decoder)):
        yield "stack", stack
        for module in stack.modules():
            match module:
                case Embedding():
                    yield "embedding", module
                case Attention():
                    yield "attention", module
                    for child in module.children():
                        is_norm = isinstance(child, Norm)
                        yield ("norms of heads" if is_norm else "attention projections"), child
                case Block(ffn=nn.Module() as ffn):
                    yield "feed-forward", ffn
        for parent in (*stack.blocks, stack):
            for child in parent.children():
                if isinstance(child, Norm):
                    yield "norms", child


def profile(
    network: Transformer,
    loss: Loss,
    batches: Sequence[Callable[[], Batch]],
    training: Training,
    arithmetic: Arithmetic,
    *,
    steps: int = 5,
    watts: float | None = None,
) -> Profile:
    """Train for `steps` steps on these batches, one a step and again from the first, and measure the time by component.

    Each item of `batches` is a function that makes a batch, and is timed too. Changes the network.
    """
    device = network.device
    network.train()
    optimizer, clock = build(network, training.optimizer), Clock(device)

    def step(make: Callable[[], Batch]) -> None:
        """One update as in training, with its parts timed."""
        with clock.span("data"):
            batch = make().to(device)
        with clock.span("forward"), arithmetic.autocast(device):
            total, count = loss(network, batch)
        with clock.span("backward"):
            (total / count).backward()
        with clock.span("clipping"):
            nn.utils.clip_grad_norm_(optimizer.parameters, math.inf if training.clip is None else training.clip)
        with clock.span("optimizer"):
            optimizer.step()
            optimizer.zero_grad()

    def one_step(i: int) -> dict[str, float]:
        whole = timed(lambda: step(batches[i % len(batches)]), device)
        return clock.seconds() | {"step": whole}

    with arithmetic.products(), timed_modules(network, clock):
        for i in range(-WARM_UP, 0):
            one_step(i)
        meter = Meter(device, watts)
        seen = [one_step(i) for i in range(steps)]
        joules, source = meter.read(sum(one["step"] for one in seen))
    examples = [make().to(device) for make in batches[:steps]]
    counted = [flops_of(network, loss, batch, arithmetic) for batch in examples]
    tokens = [sum(int(one.valid_cells.sum()) for one in batch.inputs) for batch in examples]
    times = [step["step"] for step in seen]
    flops = [one["forward"] + one["backward"] for one in counted]
    middle = {name: median(step[name] for step in seen) for name in seen[0]}
    components = tuple(
        ComponentTime(name, seconds_of(middle, name), int(median(one[name] for one in counted))) for name in COMPONENTS
    )
    return Profile(
        components=components,
        seconds=median(times),
        spread=(max(times) - min(times)) / median(times),
        flops=int(median(flops)),
        flops_per_second=median(flops[i % len(flops)] / seconds for i, seconds in enumerate(times)),
        tokens=int(median(tokens)),
        tokens_per_second=median(tokens[i % len(tokens)] / seconds for i, seconds in enumerate(times)),
        precision=str(arithmetic),
        device=str(device),
        ceiling=ceiling(device, arithmetic),
        joules=None if joules is None else joules / steps,
        energy_by=source,
    )


COMPONENTS = (
    *("data", "embedding", "attention projections", "attention scores, softmax, values", "feed-forward", "norms"),
    *("residuals, masks, dropout", "head and loss", "backward", "clipping", "optimizer"),
)


def seconds_of(spans: dict[str, float], name: str) -> float:
    """Seconds (or FLOPs) of each component, from those of the timed modules, which may be nested."""

    def of(*names: str) -> float:
        return sum(spans.get(one, 0.0) for one in names)

    match name:
        case "attention scores, softmax, values":
            return of("attention") - of("attention projections", "norms of heads")
        case "norms":
            return of("norms", "norms of heads")
        case "residuals, masks, dropout":
            return of("stack") - of("embedding", "attention", "feed-forward", "norms")
        case "head and loss":
            return of("forward") - of("stack")
        case _:
            return of(name)


def flops_of(network: Transformer, loss: Loss, batch: Batch, arithmetic: Arithmetic) -> dict[str, int]:
    """FLOPs of the matrix products of one step: by component for the forward pass, in total for the backward pass."""
    names = {module: name for name, module in network.named_modules()}
    with FlopCounterMode(display=False, custom_mapping=FUSED) as forward, arithmetic.autocast(batch.labels.device):
        total, _ = loss(network, batch)
    with FlopCounterMode(display=False, custom_mapping=FUSED) as backward:
        total.backward()
    network.zero_grad(set_to_none=True)
    counts = {name: sum(ops.values()) for name, ops in forward.get_flop_counts().items()}
    spans: dict[str, float] = {"forward": forward.get_total_flops(), "backward": backward.get_total_flops()}
    for kind, module in kinds(network):
        spans[kind] = spans.get(kind, 0) + counts.get(f"{type(network).__name__}.{names[module]}", 0)
    components = {name: int(seconds_of(spans, name)) for name in COMPONENTS}
    return components | {"forward": forward.get_total_flops()}


def ceiling(device: torch.device, arithmetic: Arithmetic, *, size: int | None = None) -> float:
    """FLOPs per second of a large square matrix product in this precision: the best of six runs."""
    size = size or CEILING_SIZE.get(device.type, 8192)
    dtype = torch.bfloat16 if arithmetic.precision == "bf16" else torch.float32
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    with arithmetic.products():
        best = min(timed(lambda: a @ b, device) for _ in range(6))
    return 2 * size**3 / best
