"""A run of ours and one of the reference library, step by step in float64."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.model import Transformer
from clearhead.recipe.training import AdamW, Constant, Training
from clearhead.tasks.task import Batch, Task
from clearhead.training.run import Run
from clearhead.training.update import update

LR = 1e-2


def require_equal_updates(
    task: Task, network: Transformer, theirs: Any, loss_of: Callable[[Any, Batch], Tensor], *, steps: int = 20
) -> None:
    """Their losses in updates with AdamW are ours, to 1e-9; `loss_of` is their mean loss on one of our batches."""
    config = Training(steps=steps, device="cpu", precision="fp32", clip=None, optimizer=AdamW(lr=LR, fused=False))
    run = Run(network.double(), task, config.model_copy(update={"schedule": Constant()}), None)
    run.progress.precision = "fp32"
    theirs = theirs.double().train()
    optimizer = torch.optim.AdamW(theirs.parameters(), lr=LR, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0)
    found, expected = list[float](), list[float]()
    for step in range(steps):
        plan = task.plan(seed=0, epoch=step)
        batch = task.collate(plan[step % len(plan)])
        loss = loss_of(theirs, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
        found.append(update(run, [(batch, True)], 1.0)[0])
        run.progress.step += 1
    assert found == pytest.approx(expected, rel=1e-9)
    assert found[0] != pytest.approx(found[-1], rel=1e-3), "the weights must change"
