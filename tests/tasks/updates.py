"""The losses of updates in float64: those of our training, and those of the other library from the same weights."""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.model import Transformer
from clearhead.recipe.training import AdamW, Constant, Training
from clearhead.runs import resume, start
from clearhead.tasks.registry import validate
from clearhead.tasks.task import Batch, Prepared, Task
from clearhead.training.events import Stepped
from clearhead.training.run import Run
from clearhead.training.train import train
from clearhead.training.update import update

LR, BETAS, EPS = 3e-3, (0.9, 0.999), 1e-8
OPTIMIZER = AdamW(lr=LR, betas=BETAS, eps=EPS)


def batches(task: Task) -> Iterator[Batch]:
    """The batches of epoch after epoch."""
    for epoch in range(1000):
        for examples in task.plan(seed=0, epoch=epoch):
            yield task.collate(examples)


def our_losses(network: Transformer, task: Task, n: int) -> list[float]:
    """The mean loss before each of n updates."""
    settings = Training(
        precision="fp32", matmul_precision="highest", device="cpu", clip=1.0, optimizer=OPTIMIZER, schedule=Constant()
    )
    run = Run(network.double(), task, settings, None)
    return [update(run, [(batch, True)], 1.0)[0] for batch in islice(batches(task), n)]


def their_losses(network: torch.nn.Module, task: Task, n: int, loss_of: Callable[[Any, Batch], Tensor]) -> list[float]:
    """The same of a network of the other library, with PyTorch's optimizer and clipping."""
    optimizer = torch.optim.AdamW(network.train().parameters(), lr=LR, betas=BETAS, eps=EPS, weight_decay=0.0)
    found: list[float] = []
    for batch in islice(batches(task), n):
        loss = loss_of(network, batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        found.append(loss.item())
    return found


def mask_of(batch: Batch) -> Tensor:
    """b t: 1 for each token, 0 for padding."""
    tokens = batch.inputs[0]
    return torch.ones_like(tokens.ids) if tokens.valid is None else tokens.valid.long()


def check_resumed(tables: Mapping[str, Any], steps: int = 6) -> Prepared:
    """A run that stopped half-way goes on with the losses of one that did not; its data, as it reads them again."""

    def losses(run: Run) -> dict[int, float]:
        return {event.step: event.loss for event in train(run) if isinstance(event, Stepped)}

    def begun(n: int, folder: str) -> Run:
        return start(validate({**tables, "training": {**tables["training"], "steps": n}}, where="x"), Path(folder))[0]

    whole, half = losses(begun(steps, "whole")), steps // 2
    losses(begun(half, "part"))
    run, prepared = resume(Path("part"), changes={"steps": steps})
    assert losses(run) == {step: loss for step, loss in whole.items() if step > half}
    return prepared
