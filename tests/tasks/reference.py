"""A run of ours and one of the reference library, step by step in float64."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.api import load
from clearhead.model import Transformer
from clearhead.model.heads import LanguageHead
from clearhead.recipe.training import AdamW, Constant, Training
from clearhead.tasks.task import Batch, Task
from clearhead.training.run import Run
from clearhead.training.update import update

LR = 1e-2
UPDATES = pytest.mark.parametrize("steps", [20, pytest.param(200, marks=pytest.mark.slow)])


def require_equal_updates(
    task: Task, network: Transformer, theirs: Any, loss_of: Callable[[Any, Batch], Tensor], *, steps: int
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


def small_encoder_decoder(folder: Path, vocab_size: int) -> tuple[Any, Transformer]:
    """A network of the reference library, whose norms and softmaxes keep float64, and ours with its weights."""
    transformers = pytest.importorskip("transformers")
    size = {"d_model": 16, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 64}
    layers = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    dropouts = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    torch.manual_seed(0)
    config = transformers.BartConfig(vocab_size=vocab_size, pad_token_id=0, **size, **layers, **dropouts)
    theirs = transformers.BartForConditionalGeneration(config)
    theirs.save_pretrained(folder)
    network = load(folder).network
    assert isinstance(network.head, LanguageHead)
    assert network.head.output.bias is not None
    network.head.output.bias.requires_grad_(False)  # Theirs is a buffer, which no update changes.
    return theirs.double(), network


def encoder_decoder_loss(theirs: Any, batch: Batch) -> Tensor:
    """The mean loss of the reference library on a batch of pairs."""
    source, target = batch.inputs
    valid = torch.ones_like(target.ids, dtype=torch.bool) if target.valid is None else target.valid
    labels = torch.full(target.ids.shape, -100)
    labels[valid] = batch.labels
    mask = None if source.valid is None else source.valid.long()
    return theirs(source.ids, attention_mask=mask, decoder_input_ids=target.ids, labels=labels).loss
