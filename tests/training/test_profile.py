from typing import Any

import pytest
import torch

from clearhead.machine.precision import Arithmetic
from clearhead.model import Transformer, attention
from clearhead.model.summary import summarize
from clearhead.recipe.training import Training
from clearhead.training import profile as module
from clearhead.training.profile import COMPONENTS, Profile, profile
from tests.training.tiny import Kind, new_network, task_of


@pytest.fixture(autouse=True)
def _small_ceiling(monkeypatch) -> None:
    monkeypatch.setattr(module, "CEILING_SIZE", {"cpu": 64})


def profiled(kind: Kind, *, steps: int = 2, **stacks: Any) -> tuple[Profile, Transformer, Any]:
    task = task_of(kind)
    network = new_network(task, **stacks)
    batch = task.collate([0, 1, 2, 3] if kind == "translation" else task.plan(seed=0, epoch=0)[0])
    found = profile(network, task.loss, [lambda: batch], Training(), Arithmetic("fp32"), steps=steps)
    return found, network, batch


@pytest.mark.parametrize("kind", ["translation", "lm"])
def test_components_make_up_the_step(kind: Kind):
    found, _, _ = profiled(kind, steps=1)
    assert [one.name for one in found.components] == list(COMPONENTS)
    assert all(one.seconds >= 0 for one in found.components)
    assert 0 < sum(one.seconds for one in found.components) <= found.seconds
    assert found.largest.name != "backward"
    assert found.mfu > 0


def test_flops_are_the_summary_s_by_component():
    found, network, batch = profiled("lm", qk_norm=True)
    b, t = batch.inputs[0].grid
    summary = summarize(network.config, batch=b, target_length=t)
    flops = {one.name: one.flops for one in found.components}
    by_path = {row.path: row.flops for row in summary.rows}
    assert flops["feed-forward"] == by_path["decoder.blocks.*.ffn"]
    attention = flops["attention projections"] + flops["attention scores, softmax, values"]
    assert attention == by_path["decoder.blocks.*.attn"]
    assert flops["head and loss"] == by_path["head.output"]
    assert found.flops - flops["backward"] == summary.flops
    assert flops["backward"] == 2 * summary.flops
    assert found.tokens == b * t


def test_a_profile_trains_and_leaves_no_hook():
    _, network, _ = profiled("lm")
    again = new_network(task_of("lm"))
    assert not torch.equal(*(next(one.parameters()) for one in (network, again)))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())


def test_padding_is_no_token():
    found, _, batch = profiled("translation")
    assert found.tokens == sum(int(x.ids.numel() if x.valid is None else x.valid.sum()) for x in batch.inputs)
    assert found.tokens < sum(x.ids.numel() for x in batch.inputs)


def test_fused_attention_counts_too(monkeypatch):
    explicit, _, _ = profiled("lm")
    monkeypatch.setattr(attention, "EXPLICIT_UP_TO", 0)
    fused, _, _ = profiled("lm")
    flops = [{one.name: one.flops for one in found.components} for found in (explicit, fused)]
    assert flops[0]["attention scores, softmax, values"] == flops[1]["attention scores, softmax, values"] > 0
    assert flops[1]["backward"] >= flops[0]["backward"]
