"""The start-up probe, which finds the fastest accurate arithmetic for a network on this machine.

bfloat16 and oneDNN's float32 products are faster only if matrices are large (docs/benchmarks.md). So the probe measures
them, whatever the name of the processor. What it found is kept for the next start of the same run.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
import xxhash
from pydantic import JsonValue

from clearhead.config import Config
from clearhead.errors import UserError
from clearhead.machine import probes
from clearhead.machine.precision import Arithmetic, accurate, wait
from clearhead.model import Transformer
from clearhead.model.linear import shapes
from clearhead.model.mode import Evaluating
from clearhead.recipe.training import MatmulPrecision, Training
from clearhead.tasks.task import Batch, Task
from clearhead.training.ranks import ALONE, Ranks

TOLERANCE = 0.02
"""Relative difference of the first loss up to which bfloat16 is trusted."""
LEVERS = {"accumulate", "attention", "checkpoint_activations", "chunked_loss", "cheap_dropout", "packed", "weights"}
"""Fields of `[training]` on which times depend."""
HOPELESS = 1.5
"""An arithmetic that takes this many times as long as the fastest is not tried a second time."""


@dataclass(frozen=True)
class PrecisionChoice:
    """The arithmetic that was chosen, and the reason."""

    arithmetic: Arithmetic
    why: str


class Precision(Config):
    """What the probe keeps for the next start."""

    precision: Literal["fp32", "bf16"]
    matmul: MatmulPrecision
    why: str


def choose(network: Transformer, batch: Batch, config: Training, task: Task, ranks: Ranks = ALONE) -> PrecisionChoice:
    """The configured precision; for `auto` the one whose forward and backward pass is fastest and whose loss agrees.

    Processes that share a network make the same passes, and the times of the first process decide. A process alone
    remembers its choice for the same weights, batch and settings.
    """
    if ranks.size > 1 or probes.file() is None:
        return _probe(network, batch, config, task, ranks)
    of, device = _question(network, batch, config, task), str(batch.labels.device)
    if (found := probes.recall(Precision, of, device=device)) is not None:
        return PrecisionChoice(Arithmetic(found.precision, found.matmul), f"{found.why} (kept in {probes.file()})")
    choice = _probe(network, batch, config, task, ranks)
    kind = "bf16" if choice.arithmetic.precision == "bf16" else "fp32"
    probes.keep(Precision(precision=kind, matmul=choice.arithmetic.matmul, why=choice.why), of, device=device)
    return choice


def _question(network: Transformer, batch: Batch, config: Training, task: Task) -> Mapping[str, JsonValue]:
    """Everything on which the times and the losses of the probe depend, beside the machine."""
    read = [value for one in batch.inputs for value in vars(one).values() if isinstance(value, torch.Tensor)]
    digest = xxhash.xxh3_128()
    for tensor in (*network.parameters(), *network.buffers(), *read, batch.labels):
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return {
        "task": f"{type(task).__module__}.{type(task).__qualname__}",
        "model": network.config.model_dump(mode="json"),
        "training": config.model_dump(mode="json", include=LEVERS | {"precision", "matmul_precision"}),
        "trained": [name for name, p in network.named_parameters() if p.requires_grad],
        "numbers": digest.hexdigest(),
    }


def _probe(network: Transformer, batch: Batch, config: Training, task: Task, ranks: Ranks) -> PrecisionChoice:
    device, why = batch.labels.device, list[str]()
    only_bf16 = config.precision == "bf16" or config.weights == "bf16"
    kinds: list[MatmulPrecision] = ["highest"]
    if config.matmul_precision == "auto":
        if not only_bf16:
            kinds = ranks.first(accurate(shapes(network), device, why))
    else:
        kinds = [config.matmul_precision]
    candidates = [] if only_bf16 else [Arithmetic("fp32", kind) for kind in kinds]
    if config.precision != "fp32":
        candidates.append(Arithmetic("bf16", kinds[0]))
    if len(candidates) == 1:
        return PrecisionChoice(candidates[0], "; ".join([*why, "nothing to choose"]))
    with Evaluating(network):
        seconds, losses = _tried(network, batch, task, candidates, hopeless=HOPELESS if ranks.size == 1 else math.inf)
    return ranks.first(ranks.together(lambda: _fastest(seconds, losses, why)))


def _fastest(seconds: dict[Arithmetic, float], losses: dict[Arithmetic, float], why: list[str]) -> PrecisionChoice:
    """The fastest arithmetic whose loss agrees with that of the first."""
    exact = next(iter(losses.values()))
    for arithmetic, loss in losses.items():
        if not abs(loss - exact) <= TOLERANCE * abs(exact):
            del seconds[arithmetic]
            why.append(f"{arithmetic} gives another loss, {loss:.4g} for {exact:.4g}")
    if not seconds:
        raise UserError(f"training: expected a finite loss on the first batch, got {exact}; try another model.init")
    best = min(seconds, key=lambda one: seconds[one])
    times = ", ".join(f"{one} {1000 * taken:.0f} ms" for one, taken in seconds.items())
    return PrecisionChoice(best, "; ".join([f"forward and backward of the first batch: {times}", *why]))


def _tried(
    network: Transformer, batch: Batch, task: Task, candidates: list[Arithmetic], *, hopeless: float
) -> tuple[dict[Arithmetic, float], dict[Arithmetic, float]]:
    """The least seconds and the mean loss of each arithmetic, in two rounds. The network does not change."""
    device = batch.labels.device
    seconds: dict[Arithmetic, float] = {}
    losses: dict[Arithmetic, float] = {}
    first: dict[Arithmetic, float] = {}
    for is_second in (False, True):
        for arithmetic in candidates:
            if is_second and first[arithmetic] > hopeless * min(first.values()) and len(candidates) > 2:
                continue
            wait(device)
            start = time.perf_counter()
            with arithmetic.products():
                with arithmetic.autocast(device):
                    total, count = task.loss(network, batch)
                (total / count).backward()
                losses[arithmetic] = total.item() / count
                wait(device)
            taken = time.perf_counter() - start
            first.setdefault(arithmetic, taken)
            seconds[arithmetic] = min(seconds.get(arithmetic, taken), taken)
            network.zero_grad(set_to_none=True)
    return seconds, losses
