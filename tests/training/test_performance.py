from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.machine import tuning_cache
from clearhead.machine.precision import Arithmetic, accurate
from clearhead.model import heads
from clearhead.model.linear import shapes
from clearhead.recipe.training import Training
from clearhead.training import performance
from clearhead.training import train as loop
from clearhead.training.events import Started, Stepped
from clearhead.training.performance import TOLERANCE, Precision, choose
from clearhead.training.run import set_performance_options
from clearhead.training.train import train
from clearhead.training.update import BatchIterator
from tests.training.tiny import Around, Kind, finish, new_network, new_run, task_of, translation

AUTO = Training(steps=1)
KNOWN = Training(steps=1, matmul_precision="highest")


def test_what_was_asked_for_is_taken_untried():
    task = Around(translation())
    for kind in ("fp32", "bf16"):
        config = Training(steps=1, precision=kind, matmul_precision="highest")
        assert choose(new_network(task), task.collate([0, 1]), config, task).arithmetic == Arithmetic(kind)
    assert task.n_losses == 0


def test_a_run_that_tried_is_the_one_that_did_not(monkeypatch: pytest.MonkeyPatch):
    wanted = finish(new_run(translation()))
    tried: list[int] = []

    def try_and_take_fp32(network, batch, *others):
        choose(network, batch, *others)
        tried.append(batch.count)
        return Precision(precision="fp32")

    monkeypatch.setattr(loop, "choose", try_and_take_fp32)
    run = new_run(translation(), precision="auto")
    assert finish(run) == wanted
    [n_tokens] = tried
    assert n_tokens < 0.7 * BatchIterator(run).first().count, "half a batch takes less memory than an update"


@pytest.mark.parametrize(
    ("fp32", "bf16", "spoilt", "wanted"), [(1, 2, 1, "fp32"), (2, 1, 1, "bf16"), (2, 1, 1.05, "fp32")]
)
def test_the_faster_one_is_taken_if_its_loss_agrees(
    monkeypatch: pytest.MonkeyPatch, fp32: float, bf16: float, spoilt: float, wanted: str
):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(performance, "time", SimpleNamespace(perf_counter=lambda: clock.now))

    def take_time(total: Tensor, n: int) -> Tensor:
        # The first round of each is slow, as first calls are: the second counts.
        is_bf16 = torch.is_autocast_enabled("cpu")
        clock.now += (bf16 if is_bf16 else fp32) * (100 if n <= 2 else 1)
        return total * spoilt if is_bf16 else total

    task = Around(translation(), loss=take_time)
    choice = choose(new_network(task), task.collate([0, 1]), KNOWN, task)
    assert choice.arithmetic.precision == wanted
    assert task.n_losses == 4
    assert ("bf16 gives another loss" if spoilt != 1 else f"{wanted} 1000 ms") in choice.why


def test_the_second_start_tries_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv(tuning_cache.FILE, str(tmp_path / "probes.json"))
    task = Around(translation())
    network = new_network(task)

    def n_tried(batch: list[int], config: Training = AUTO) -> int:
        before = task.n_losses
        choices.append(choose(network, task.collate(batch), config, task))
        return task.n_losses - before

    choices: list[Precision] = []
    assert n_tried([0, 1]) > 0
    assert n_tried([0, 1]) == 0
    assert choices[0].arithmetic == choices[1].arithmetic
    assert "kept in" in choices[1].why
    assert n_tried([0, 2]) > 0, "other tokens may have another loss"
    assert n_tried([0, 1], AUTO.model_copy(update={"attention": "fused"})) > 0
    with torch.no_grad():
        next(network.parameters())[0] += 1.0
    assert n_tried([0, 1]) > 0, "other weights may have another loss"
    network.requires_grad_(False)
    next(network.parameters()).requires_grad_(True)
    assert n_tried([0, 1]) > 0, "fewer gradients take less time"


FIRST = 4


def losses(kind: Kind, **changes: Any) -> list[float]:
    """Of a few updates, with no dropout: a option may draw other numbers."""
    run = new_run(task_of(kind), dropout=0.0, steps=FIRST, **changes)
    return [event.loss for event in train(run) if isinstance(event, Stepped)]


plain_losses = cache(losses)


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
    assert losses(kind, **option) == pytest.approx(plain_losses(kind), rel=1e-5)


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
    names = {option.name for option in started.performance_options}
    assert {"precision", "attention", "loss", "allocator", "recomputation"} <= names
