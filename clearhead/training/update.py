"""The batches of each update, and the update of the weights from the batches of all processes."""

import math
from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from clearhead.errors import compiling
from clearhead.model.fast.activation_checkpointing import selective_checkpointing
from clearhead.randomness import key
from clearhead.tasks.task import Batch
from clearhead.training.rows import by_rows
from clearhead.training.run import Run
from clearhead.training.sharding import clipping, gradients_stay, read_with_norm


def update(run: Run, batches: Sequence[tuple[Batch, bool]], lr: float) -> tuple[float, float, int]:
    """One optimizer step on the mean loss over the batches of all processes.

    Returns that loss, the gradient's norm and the number of tokens. Changes no weight if the loss or the norm is not
    finite.
    """
    config, at, ranks = run.config, run.progress, run.ranks
    if not run.network.training:
        run.network.train()
    run.unfreezing.apply(at.step, at.epoch)
    # For a CPU its generator alone: telling other devices of a seed takes a hundred times as long.
    seed = torch.manual_seed if run.device.type != "cpu" else torch.default_generator.manual_seed
    seed(key(config.seed, "step", at.step, *([ranks.data_rank] if ranks.data_rank else [])))
    count = round(ranks.sum(sum(batch.count for batch, counts in batches if counts)))
    losses: list[Tensor] = []
    with by_rows(run.tables), compiling("training.compile"):
        for i, (batch, counts) in enumerate(batches):
            with gradients_stay(run.replica) if i + 1 < len(batches) else nullcontext():
                with at.arithmetic.autocast(run.device), selective_checkpointing(run.recomputes):
                    if run.distillation is not None:
                        loss, _ = run.distillation.loss(run.task, batch, smoothing=config.label_smoothing)
                    else:
                        loss, _ = run.task.loss(run.forward, batch, smoothing=config.label_smoothing)
                # Gradients are averaged over processes; the factor turns that mean into a sum.
                (loss * (ranks.data_size if counts else 0) / count).backward()
            losses += [loss.detach()] if counts else []
    total, norm = read_with_norm(losses, run.optimizer.parameters)
    total = ranks.sum(total)
    if math.isfinite(total) and math.isfinite(norm):
        run.optimizer.set_lr(lr)
        if run.mean is not None and config.blend is not None:
            add_to(run.mean, run.network, -config.blend)
        run.optimizer.step(factor=clipping(norm, config.clip if config.clip is not None else math.inf))
        if run.mean is not None and config.blend is not None:
            add_to(run.mean, run.network, config.blend)
        elif run.mean is not None and config.ema is not None:
            average_into(run.mean, run.network, min(config.ema, (1 + at.step) / (10 + at.step)))
    run.optimizer.zero_grad()
    return total / count, norm if math.isfinite(total) else math.nan, count


def _own(mean: nn.Module, network: nn.Module) -> list[tuple[nn.Parameter, nn.Parameter]]:
    """The weights of both, apart from those that they share."""
    return [(a, b) for a, b in zip(mean.parameters(), network.parameters(), strict=True) if a is not b]


@torch.no_grad()
def add_to(mean: nn.Module, network: nn.Module, share: float) -> None:
    """mean <- mean + share weights: an update of the weights moves the mean by this share of the change."""
    for a, b in _own(mean, network):
        a.add_(b, alpha=share)


@torch.no_grad()
def average_into(mean: nn.Module, network: nn.Module, decay: float) -> None:
    """mean <- decay mean + (1 - decay) weights, apart from weights that both share"""
    both = _own(mean, network)
    means: list[Tensor] = [a.data for a, _ in both]
    weights: list[Tensor] = [b.data for _, b in both]
    if all(a.dtype == b.dtype for a, b in zip(means, weights, strict=True)):
        torch._foreach_lerp_(means, weights, 1 - decay)
    else:
        for a, b in zip(means, weights, strict=True):
            a.lerp_(b.to(a.dtype), 1 - decay)


class BatchIterator:
    """The batches of each update, epoch after epoch, from the run's position in the data."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.plan = run.task.plan(seed=run.config.seed, epoch=run.progress.epoch)

    def first(self, *, half: bool = False) -> Batch:
        """This process's share of a batch, or of half a batch, for trials. The position does not change."""
        examples = self.plan[0]
        return self._share(examples[: (len(examples) + 1) // 2] if half else examples)[0]

    def next(self) -> list[tuple[Batch, bool]]:
        """This process's share of each batch of one update.

        False marks a zero-weight placeholder on a rank that has no examples.
        """
        run, at = self.run, self.run.progress
        batches: list[tuple[Batch, bool]] = []
        while len(batches) < run.config.accumulate:
            if at.batch >= len(self.plan):
                at.epoch, at.batch = at.epoch + 1, 0
                self.plan = run.task.plan(seed=run.config.seed, epoch=at.epoch)
            batches.append(self._share(self.plan[at.batch]))
            at.batch += 1
        return batches

    def _share(self, examples: Sequence[int]) -> tuple[Batch, bool]:
        mine = self.run.ranks.share(examples)
        return self.run.task.collate(mine or examples[:1]).to(self.run.device), len(mine) > 0
