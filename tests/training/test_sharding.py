"""What can be divided, and that one process is left as it is. What processes compute is in test_ranks.py."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from clearhead import config as c
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.recipe.training import Training
from clearhead.training.ranks import ALONE, Ranks
from clearhead.training.sharding import (
    check_heads,
    check_ranks,
    clipping,
    divide,
    is_part,
    is_sharded,
    norm_of,
    replicated,
    scale,
)
from tests.model import small
from tests.training.tiny import new_network, translation


def test_one_process_is_left_as_it_is():
    config = Training(parallel="fsdp")
    network = new_network(translation())
    before = dict(network.named_parameters())
    divide(network, config, ALONE)
    assert not is_sharded(config, ALONE)
    assert replicated(network, config, ALONE) is network
    assert all(p is before[name] and not is_part(p) for name, p in network.named_parameters())


@pytest.mark.parametrize(("size", "field"), [(3, "n_heads=2"), (4, "n_heads=2"), (2, "")])
def test_heads_that_cannot_be_shared_out_are_one_line(size: int, field: str):
    network = new_network(translation())
    if not field:
        check_heads(network, size)
        return
    with pytest.raises(UserError, match=field):
        check_heads(network, size)


@pytest.mark.parametrize(
    ("change", "part"), [({"sinks": True}, "sinks"), ({"qk_norm": True, "qk_norm_over": "heads"}, "q_norm")]
)
def test_a_part_that_needs_all_heads_is_one_line(change: dict[str, Any], part: str):
    network = Transformer(c.ModelConfig(decoder=small.stack(**change), head=c.LanguageHead()))
    check_heads(network, 1)
    with pytest.raises(UserError, match=f"expected 1 for model.decoder, whose {part} needs all heads at once, got 2"):
        check_heads(network, 2)


def test_more_processes_than_examples_everywhere_is_one_line():
    task = translation()
    largest = max(map(len, task.plan(seed=0, epoch=0)))
    ranks = Ranks(rank=0, size=largest + 1)
    with pytest.raises(UserError, match=f"expected at most {largest} processes.*got {largest + 1}"):
        check_ranks(new_network(task), task, Training(), ranks, read="")


@pytest.mark.parametrize("limit", [0.5, 50.0, math.inf])
def test_clip_is_pytorch_s(limit: float):
    drawn = [torch.randn(4, 3), torch.randn(5)]
    ours, theirs = ([nn.Parameter(t.clone()) for t in drawn] for _ in range(2))
    for group in (ours, theirs):
        for p, t in zip(group, drawn, strict=True):
            p.grad = 3 * t
    norm = norm_of(ours)
    scale(ours, clipping(norm, limit))
    assert norm == nn.utils.clip_grad_norm_(theirs, limit).item()
    torch.testing.assert_close([p.grad for p in ours], [p.grad for p in theirs], rtol=0, atol=0)
