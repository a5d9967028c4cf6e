"""Each option changes how a result is computed, never the result."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from clearhead.machine.precision import accurate
from clearhead.model import heads
from clearhead.model.linear import shapes
from clearhead.recipe.training import Training
from clearhead.training.events import Started, Stepped
from clearhead.training.performance import TOLERANCE
from clearhead.training.run import set_performance_options
from clearhead.training.train import train
from tests.training.tiny import Kind, new_network, new_run, task_of

FIRST = 4


def losses(kind: Kind, **changes: Any) -> list[float]:
    """Of a few updates, with no dropout: a option may draw other numbers."""
    run = new_run(task_of(kind), dropout=0.0, steps=FIRST, **changes)
    return [event.loss for event in train(run) if isinstance(event, Stepped)]


@pytest.mark.parametrize("kind", ["translation", "lm"])
@pytest.mark.parametrize(
    "option",
    [
        {"attention": "explicit"}, {"attention": "fused"}, {"chunked_loss": False}, {"checkpoint_activations": True},
        {"keep_freed_memory": False}, {"cheap_dropout": False},
        {"optimizer": {"kind": "adamw", "fused": False}},
    ],
)  # fmt: skip
def test_a_lever_changes_no_loss(kind: Kind, option: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(heads, "CHUNK", 64)
    assert losses(kind, **option) == pytest.approx(losses(kind), rel=1e-5)


@pytest.mark.parametrize("kind", ["translation", "lm"])
def test_medium_products_change_no_loss_where_the_probe_accepts_them(kind: Kind):
    """Elsewhere, as with AMX, `medium` rounds factors to bfloat16: `auto` never chooses it there."""
    network = new_network(task_of(kind))
    is_accurate = "medium" in accurate(shapes(network), torch.device("cpu"), [])
    found = losses(kind, matmul_precision="medium")
    assert found == pytest.approx(losses(kind), rel=1e-5 if is_accurate else TOLERANCE)


def test_recomputation_keeps_what_enters_a_block():
    def kept(recompute: bool) -> int:
        task, seen = task_of("lm"), list[int]()
        network = new_network(task, n_layers=4).train()
        set_performance_options(network, Training(steps=1, checkpoint_activations=recompute))
        batch = task.collate(task.plan(seed=0, epoch=0)[0])
        count: Callable[[torch.Tensor], torch.Tensor] = lambda x: (seen.append(x.numel()), x)[1]  # noqa: E731
        with torch.autograd.graph.saved_tensors_hooks(count, lambda x: x):
            task.loss(network, batch)[0].backward()
        return sum(seen)

    assert kept(True) < 0.6 * kept(False)


def test_every_lever_is_told_with_the_field_that_sets_it():
    run = new_run(task_of("translation"), steps=1)
    started = next(iter(train(run)))
    assert isinstance(started, Started)
    fields = set(dict(run.config))
    for option in started.performance_options:
        assert option.field.partition(".")[0] in fields
        assert option.value
        assert option.why
    assert {"precision", "attention", "loss", "allocator", "recomputation"} <= {
        one.name for one in started.performance_options
    }
