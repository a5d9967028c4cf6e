"""The settings that make a run fast or small, as `clearhead train --explain` prints them."""

import torch

from clearhead.model.attention import EXPLICIT_UP_TO
from clearhead.model.heads import LanguageHead
from clearhead.recipe.training import AdamW, Training
from clearhead.training.events import Lever
from clearhead.training.optimizers import fast_dtype
from clearhead.training.run import Run


def levers(run: Run, why: str) -> tuple[Lever, ...]:
    """Each setting with its value, the reason, and the field that sets it. `why` is the start-up probe's reason."""
    config, at, device = run.config, run.progress, run.device
    on_cpu = device.type == "cpu"
    found = [
        Lever("device", str(device), "asked for" if config.device != "auto" else "the best one here", "device"),
        Lever("precision", at.precision, why, "precision"),
        Lever("weights", config.weights, _weights(config), "weights"),
        Lever("float32 products", at.matmul, "see precision", "matmul_precision"),
        _attention(config, on_cpu),
        Lever("packed batches", _said(config.packed), "padding never reaches a linear layer", "packed"),
    ]
    if on_cpu:
        threads = "asked for" if config.threads is not None else "PyTorch's default"
        found.insert(1, Lever("threads", str(torch.get_num_threads()), threads, "threads"))
        kept = "freed memory is used again, not handed back and faulted in page by page (glibc), in huge pages (Linux)"
        found.append(Lever("allocator", _said(config.keep_freed_memory), kept, "keep_freed_memory"))
        shared = "eight elements share a random word of 64 bits, so that a probability is a multiple of 1/256"
        found.append(Lever("cheap dropout", _said(config.cheap_dropout), shared, "cheap_dropout"))
    if isinstance(run.network.head, LanguageHead):
        found.append(_loss(config, run.network.head))
    again = "a block's values are computed again in the backward pass: a third more time, much less memory"
    found.append(Lever("recomputation", _said(config.checkpoint_activations), again, "checkpoint_activations"))
    hidden = "AdamW for all" if isinstance(config.optimizer, AdamW) else _muon(device)
    found.append(Lever("optimizer", config.optimizer.kind, hidden, "optimizer.kind"))
    fused = "AdamW in one kernel for all its float32 weights"
    found.append(Lever("fused optimizer", _said(config.optimizer.fused), fused, "optimizer.fused"))
    slow = "the first steps take minutes, kept in PyTorch's cache for the next run; on a CPU later ones are no faster"
    found.append(Lever("compilation", _said(config.compile), slow, "compile"))
    if run.ranks.size > 1:
        grid = f"{run.ranks.data_size} x {run.ranks.tensor_size} processes"
        kind = "every process holds a part" if run.is_sharded else "every process holds a copy"
        found.append(Lever("processes", grid, f"data x tensor; {kind}", "parallel"))
    return tuple(found)


def _attention(config: Training, on_cpu: bool) -> Lever:
    if config.attention != "auto":
        return Lever("attention", config.attention, "asked for", "attention")
    if on_cpu:
        value = f"explicit up to {EXPLICIT_UP_TO} keys, then fused"
        return Lever("attention", value, "plain products beat the fused kernel on short rows of a CPU", "attention")
    return Lever("attention", "fused", "PyTorch's scaled_dot_product_attention", "attention")


def _loss(config: Training, head: LanguageHead) -> Lever:
    n_words = head.output.out_features
    rows = max(1, head.chunk // n_words)
    if not config.chunked_loss:
        return Lever("loss", "all logits at once", "asked for", "chunked_loss")
    if head.soft_cap is not None:
        return Lever("loss", "all logits at once", "this head's logits are capped", "chunked_loss")
    why = f"logits of {n_words:,} words are made for so many tokens at once, and with their gradients"
    return Lever("loss", f"at most {rows:,} tokens at once", why, "chunked_loss")


def _muon(device: torch.device) -> str:
    kind = str(fast_dtype(device)).removeprefix("torch.")
    return f"hidden matrices of one shape at once, in {kind}; AdamW for the rest"


def _weights(config: Training) -> str:
    if config.weights == "fp32":
        return "updates are added to them in full"
    return (
        "matrices, their gradients and the optimizer's state take half; updates are rounded by chance, right on average"
    )


def _said(is_on: bool) -> str:
    return "on" if is_on else "off"
