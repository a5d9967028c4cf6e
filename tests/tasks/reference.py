"""A run of ours and one of the reference library, step by step in float64."""

from collections.abc import Callable
from itertools import islice
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

LR, BETAS, EPS = 3e-3, (0.9, 0.999), 1e-8
UPDATES = pytest.mark.parametrize("steps", [20, pytest.param(200, marks=pytest.mark.slow)])


def require_equal_updates(
    task: Task,
    network: Transformer,
    theirs: Any,
    loss_of: Callable[[Any, Batch], Tensor],
    *,
    steps: int,
    rel: float = 1e-9,
    change: Callable[[Batch], Batch] = lambda batch: batch,
) -> None:
    """Their losses in updates with AdamW and clipping are ours; `loss_of` is their mean loss on one of our batches."""
    settings: dict[str, Any] = {"precision": "fp32", "matmul_precision": "highest", "device": "cpu", "clip": 1.0}
    optimizer = AdamW(lr=LR, betas=BETAS, eps=EPS)
    run = Run(network.double(), task, Training(optimizer=optimizer, schedule=Constant(), **settings), None)
    theirs = theirs.double().train()
    for module in theirs.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    their_optimizer = torch.optim.AdamW(theirs.parameters(), lr=LR, betas=BETAS, eps=EPS, weight_decay=0.0)
    found, expected = list[float](), list[float]()
    plans = (examples for epoch in range(steps) for examples in task.plan(seed=0, epoch=epoch))
    for examples in islice(plans, steps):
        batch = change(task.collate(examples))
        loss = loss_of(theirs, batch)
        their_optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        their_optimizer.step()
        expected.append(loss.item())
        found.append(update(run, [(batch, True)], 1.0)[0])
    # A regression's loss falls to a thousandth, where a digit of the predictions is more of it.
    assert found == pytest.approx(expected, rel=rel, abs=rel * expected[0])
    assert found[0] != pytest.approx(found[-1], rel=1e-3), "the weights must change"


def mask_of(batch: Batch) -> Tensor:
    """b t: 1 for each token, 0 for padding."""
    tokens = batch.inputs[0]
    return torch.ones_like(tokens.ids) if tokens.valid is None else tokens.valid.long()


def labels_of(batch: Batch) -> Tensor:
    """b t: the label of each cell of the last stack, -100 for padding."""
    tokens = batch.inputs[-1]
    labels = torch.full(tokens.ids.shape, -100)
    labels[torch.ones_like(labels, dtype=torch.bool) if tokens.valid is None else tokens.valid] = batch.labels
    return labels


def apart(batch: Batch, *, causal: bool = False) -> Tensor:
    """b 1 t t: what is added to scores, so that the texts of a row do not see each other."""
    documents = batch.inputs[0].documents
    assert documents is not None
    hidden = documents[:, None, :, None] != documents[:, None, None, :]
    if causal:
        hidden = hidden | torch.ones(hidden.shape[-2:], dtype=torch.bool).triu(1)
    return torch.zeros(hidden.shape, dtype=torch.float64).masked_fill(hidden, torch.finfo(torch.float64).min)


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
