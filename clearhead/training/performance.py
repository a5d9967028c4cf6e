"""What makes a run fast or small: the fastest accurate arithmetic, and the options that `train --explain` prints.

bfloat16 and oneDNN's float32 products are faster only if matrices are large (docs/benchmarks.md). So `choose`
measures them, whatever the name of the processor. Its result is kept for the next start of the same run.
"""

import math
import time
from collections.abc import Mapping
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


class Precision(Config):
    """The arithmetic that was chosen, and the reason, as they are kept for the next start."""

    precision: Literal["fp32", "bf16"]
    matmul: MatmulPrecision = "highest"
    why: str = ""

    @property
    def arithmetic(self) -> Arithmetic:
        """The arithmetic itself."""
        return Arithmetic(self.precision, self.matmul)


def choose(network: Transformer, batch: Batch, config: Training, task: Task, ranks: Ranks = ALONE) -> Precision:
    """The configured precision; for `auto` the one whose forward and backward pass is fastest and whose loss agrees.

    Processes that share a network make the same passes, and the times of the first process decide. A process alone
    remembers its choice for the same weights, batch and settings.
    """
    is_open = "auto" in (config.precision, config.matmul_precision)
    if ranks.size > 1 or not is_open or tuning_cache.file() is None:
        return _probe(network, batch, config, task, ranks)
    of, device = _question(network, batch, config, task), str(batch.labels.device)
    if (kept := tuning_cache.recall(Precision, of, device=device)) is not None:
        return kept.model_copy(update={"why": f"{kept.why} (kept in {tuning_cache.file()})"})
    choice = _probe(network, batch, config, task, ranks)
    tuning_cache.keep(choice, of, device=device)
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


def _probe(network: Transformer, batch: Batch, config: Training, task: Task, ranks: Ranks) -> Precision:
    device, why = batch.labels.device, list[str]()
    only_bf16 = config.precision == "bf16" or config.weights == "bf16"
    kinds: list[MatmulPrecision] = ["highest"]
    if config.matmul_precision != "auto":
        kinds = [config.matmul_precision]
    elif not only_bf16:
        kinds = ranks.first(accurate(shapes(network), device, why))
    candidates = [] if only_bf16 else [Arithmetic("fp32", kind) for kind in kinds]
    if config.precision != "fp32":
        candidates.append(Arithmetic("bf16", kinds[0]))
    if len(candidates) == 1:
        return _choice(candidates[0], [*why, "nothing to choose"])
    with Evaluating(network):
        seconds, losses = _tried(network, batch, task, candidates, hopeless=HOPELESS if ranks.size == 1 else math.inf)
    return ranks.first(ranks.together(lambda: _fastest(seconds, losses, why)))


def _choice(arithmetic: Arithmetic, why: list[str]) -> Precision:
    kind = "bf16" if arithmetic.precision == "bf16" else "fp32"
    return Precision(precision=kind, matmul=arithmetic.matmul, why="; ".join(why))


def _fastest(seconds: dict[Arithmetic, float], losses: dict[Arithmetic, float], why: list[str]) -> Precision:
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
    return _choice(best, [f"forward and backward of the first batch: {times}", *why])


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
    config, at, device, ranks = run.config, run.progress, run.device, run.ranks
    on_cpu = device.type == "cpu"
    found: list[tuple[str, str | bool, str, str]] = [
        ("device", str(device), "asked for" if config.device != "auto" else "the best one here", "device"),
        ("precision", at.precision, why, "precision"),
        ("weights", config.weights, WEIGHTS[config.weights], "weights"),
        ("float32 products", at.matmul, "see precision", "matmul_precision"),
        ("attention", *_attention(config, on_cpu), "attention"),
        ("packed batches", config.packed, "padding never reaches a linear layer", "packed"),
    ]
    if on_cpu:
        threads = "asked for" if config.threads is not None else "PyTorch's default"
        found.insert(1, ("threads", str(torch.get_num_threads()), threads, "threads"))
        found += [
            ("allocator", config.keep_freed_memory, ALLOCATOR, "keep_freed_memory"),
            ("cheap dropout", config.cheap_dropout, DROPOUT, "cheap_dropout"),
        ]
    if isinstance(run.network.head, LanguageHead):
        found.append(("loss", *_loss(config, run.network.head), "chunked_loss"))
    muon = (
        f"hidden matrices of one shape at once, in {str(fast_dtype(device)).removeprefix('torch.')}; AdamW for the rest"
    )
    hidden = "AdamW for all" if isinstance(config.optimizer, AdamW) else muon
    found += [
        ("recomputation", config.checkpoint_activations, RECOMPUTED, "checkpoint_activations"),
        ("optimizer", config.optimizer.kind, hidden, "optimizer.kind"),
        ("fused optimizer", config.optimizer.fused, "AdamW in one kernel for its float32 weights", "optimizer.fused"),
        ("compilation", config.compile, COMPILED, "compile"),
    ]
    if ranks.size > 1:
        kind = "every process holds a part" if run.is_sharded else "every process holds a copy"
        grid = f"{ranks.data_size} x {ranks.tensor_size} processes"
        found.append(("processes", grid, f"data x tensor; {kind}", "parallel"))
    return tuple(PerformanceOption(name, _shown(value), why, field) for name, value, why, field in found)


WEIGHTS = {
    "fp32": "updates are added to them in full",
    "bf16": (
        "matrices, their gradients and the optimizer's state take half; updates are rounded by chance, right on average"
    ),
}
ALLOCATOR = "freed memory is used again, not handed back and faulted in page by page (glibc)"
DROPOUT = "eight elements share a random word of 64 bits, so that a probability is a multiple of 1/256"
RECOMPUTED = "a block's values are computed again in the backward pass: a third more time, much less memory"
COMPILED = "the first steps take minutes, kept in PyTorch's cache for the next run; on a CPU later ones are no faster"


def _shown(value: str | bool) -> str:
    if isinstance(value, str):
        return value
    return "on" if value else "off"


def _attention(config: Training, on_cpu: bool) -> tuple[str, str]:
    if config.attention != "auto":
        return config.attention, "asked for"
    if on_cpu:
        value = f"explicit up to {EXPLICIT_UP_TO} keys, then fused"
        return value, "plain products beat the fused kernel on short rows of a CPU"
    return "fused", "PyTorch's scaled_dot_product_attention"


def _loss(config: Training, head: LanguageHead) -> tuple[str, str]:
    n_words = head.output.out_features
    rows = max(1, head.chunk // n_words)
    if not config.chunked_loss:
        return "all logits at once", "asked for"
    if head.soft_cap is not None:
        return "all logits at once", "this head's logits are capped"
    why = f"logits of {n_words:,} words are made for so many tokens at once, and with their gradients"
    return f"at most {rows:,} tokens at once", why
