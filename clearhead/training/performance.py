"""What makes a run fast or small: the fastest accurate arithmetic, and the options that `train --explain` prints.

bfloat16 and oneDNN's float32 products are faster only if matrices are large (docs/benchmarks.md). So `choose`
measures them, whatever the name of the processor. Its result is kept for the next start of the same run.
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
from clearhead.machine import tuning_cache
from clearhead.machine.precision import Arithmetic, accurate, wait
from clearhead.model import Transformer
from clearhead.model.attention import EXPLICIT_UP_TO
from clearhead.model.heads import LanguageHead
from clearhead.model.linear import shapes
from clearhead.model.mode import Evaluating
from clearhead.recipe.training import AdamW, MatmulPrecision, Training
from clearhead.tasks.task import Batch, Task
from clearhead.training.events import PerformanceOption
from clearhead.training.optimizers import fast_dtype
from clearhead.training.ranks import ALONE, Ranks
from clearhead.training.run import Run

TOLERANCE = 0.02
"""Relative difference of the first loss up to which bfloat16 is trusted."""
TIMED_FIELDS = {
    "accumulate",
    "attention",
    "checkpoint_activations",
    "chunked_loss",
    "cheap_dropout",
    "packed",
    "weights",
}
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
    if ranks.size > 1 or tuning_cache.file() is None:
        return _probe(network, batch, config, task, ranks)
    of, device = _question(network, batch, config, task), str(batch.labels.device)
    if (found := tuning_cache.recall(Precision, of, device=device)) is not None:
        why = f"{found.why} (kept in {tuning_cache.file()})"
        return PrecisionChoice(Arithmetic(found.precision, found.matmul), why)
    choice = _probe(network, batch, config, task, ranks)
    kind = "bf16" if choice.arithmetic.precision == "bf16" else "fp32"
    tuning_cache.keep(Precision(precision=kind, matmul=choice.arithmetic.matmul, why=choice.why), of, device=device)
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
        "training": config.model_dump(mode="json", include=TIMED_FIELDS | {"precision", "matmul_precision"}),
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


def performance_options(run: Run, why: str) -> tuple[PerformanceOption, ...]:
    """Each setting with its value, the reason, and the field that sets it. `why` is the start-up probe's reason."""
    config, at, device = run.config, run.progress, run.device
    on_cpu = device.type == "cpu"
    found = [
        PerformanceOption(
            "device", str(device), "asked for" if config.device != "auto" else "the best one here", "device"
        ),
        PerformanceOption("precision", at.precision, why, "precision"),
        PerformanceOption("weights", config.weights, _weights(config), "weights"),
        PerformanceOption("float32 products", at.matmul, "see precision", "matmul_precision"),
        _attention(config, on_cpu),
        PerformanceOption("packed batches", _on_off(config.packed), "padding never reaches a linear layer", "packed"),
    ]
    if on_cpu:
        threads = "asked for" if config.threads is not None else "PyTorch's default"
        found.insert(1, PerformanceOption("threads", str(torch.get_num_threads()), threads, "threads"))
        kept = "freed memory is used again, not handed back and faulted in page by page (glibc), in huge pages (Linux)"
        found.append(PerformanceOption("allocator", _on_off(config.keep_freed_memory), kept, "keep_freed_memory"))
        shared = "eight elements share a random word of 64 bits, so that a probability is a multiple of 1/256"
        found.append(PerformanceOption("cheap dropout", _on_off(config.cheap_dropout), shared, "cheap_dropout"))
    if isinstance(run.network.head, LanguageHead):
        found.append(_loss(config, run.network.head))
    again = "a block's values are computed again in the backward pass: a third more time, much less memory"
    found.append(
        PerformanceOption("recomputation", _on_off(config.checkpoint_activations), again, "checkpoint_activations")
    )
    hidden = "AdamW for all" if isinstance(config.optimizer, AdamW) else _muon(device)
    found.append(PerformanceOption("optimizer", config.optimizer.kind, hidden, "optimizer.kind"))
    fused = "AdamW in one kernel for all its float32 weights"
    found.append(PerformanceOption("fused optimizer", _on_off(config.optimizer.fused), fused, "optimizer.fused"))
    slow = "the first steps take minutes, kept in PyTorch's cache for the next run; on a CPU later ones are no faster"
    found.append(PerformanceOption("compilation", _on_off(config.compile), slow, "compile"))
    if run.ranks.size > 1:
        grid = f"{run.ranks.data_size} x {run.ranks.tensor_size} processes"
        kind = "every process holds a part" if run.is_sharded else "every process holds a copy"
        found.append(PerformanceOption("processes", grid, f"data x tensor; {kind}", "parallel"))
    return tuple(found)


def _attention(config: Training, on_cpu: bool) -> PerformanceOption:
    if config.attention != "auto":
        return PerformanceOption("attention", config.attention, "asked for", "attention")
    if on_cpu:
        value = f"explicit up to {EXPLICIT_UP_TO} keys, then fused"
        return PerformanceOption(
            "attention", value, "plain products beat the fused kernel on short rows of a CPU", "attention"
        )
    return PerformanceOption("attention", "fused", "PyTorch's scaled_dot_product_attention", "attention")


def _loss(config: Training, head: LanguageHead) -> PerformanceOption:
    n_words = head.output.out_features
    rows = max(1, head.chunk // n_words)
    if not config.chunked_loss:
        return PerformanceOption("loss", "all logits at once", "asked for", "chunked_loss")
    if head.soft_cap is not None:
        return PerformanceOption("loss", "all logits at once", "this head's logits are capped", "chunked_loss")
    why = f"logits of {n_words:,} words are made for so many tokens at once, and with their gradients"
    return PerformanceOption("loss", f"at most {rows:,} tokens at once", why, "chunked_loss")


def _muon(device: torch.device) -> str:
    kind = str(fast_dtype(device)).removeprefix("torch.")
    return f"hidden matrices of one shape at once, in {kind}; AdamW for the rest"


def _weights(config: Training) -> str:
    if config.weights == "fp32":
        return "updates are added to them in full"
    return (
        "matrices, their gradients and the optimizer's state take half; updates are rounded by chance, right on average"
    )


def _on_off(is_on: bool) -> str:
    return "on" if is_on else "off"
