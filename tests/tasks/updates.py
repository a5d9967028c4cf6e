"""The losses of updates in float64: those of our training, and those of the other library from the same weights."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from clearhead.model import Transformer
from clearhead.recipe.training import AdamW, Constant, Training
from clearhead.tasks.task import Batch, Task
from clearhead.training.run import Run
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
