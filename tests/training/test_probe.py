from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from clearhead.machine import tuning_cache
from clearhead.machine.precision import Arithmetic
from clearhead.recipe.training import Training
from clearhead.training import performance
from clearhead.training import train as loop
from clearhead.training.performance import PrecisionChoice, choose
from clearhead.training.update import BatchIterator
from tests.training.tiny import Around, finish, new_network, new_run, state, translation

AUTO = Training(steps=1)
KNOWN = Training(steps=1, matmul_precision="highest")


def test_what_was_asked_for_is_taken_untried():
    task = Around(translation())
    for kind in ("fp32", "bf16"):
        config = Training(steps=1, precision=kind, matmul_precision="highest")
        assert choose(new_network(task), task.collate([0, 1]), config, task).arithmetic == Arithmetic(kind)
    assert task.n_losses == 0


def test_trying_leaves_no_trace():
    task = translation()
    run = new_run(task)
    before, random = state(run), torch.get_rng_state()
    assert choose(run.network, task.collate([0, 1, 2]), AUTO, task).arithmetic.precision in {"fp32", "bf16"}
    assert state(run) == before
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.get_float32_matmul_precision() == "highest"
    assert all(p.grad is None for p in run.network.parameters())


def test_a_run_that_tried_is_the_one_that_did_not(monkeypatch: pytest.MonkeyPatch):
    wanted = finish(new_run(translation()))
    tried: list[int] = []

    def try_and_take_fp32(network, batch, *others):
        choose(network, batch, *others)
        tried.append(batch.count)
        return PrecisionChoice(Arithmetic("fp32"), "")

    monkeypatch.setattr(loop, "choose", try_and_take_fp32)
    run = new_run(translation(), precision="auto")
    assert finish(run) == wanted
    [n_tokens] = tried
    assert n_tokens < 0.7 * BatchIterator(run).first().count, "half a batch takes less memory than an update"


@pytest.mark.parametrize(("fp32", "bf16", "wanted"), [(1.0, 2.0, "fp32"), (2.0, 1.0, "bf16")])
def test_the_faster_one_is_taken(monkeypatch: pytest.MonkeyPatch, fp32: float, bf16: float, wanted: str):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(performance, "time", SimpleNamespace(perf_counter=lambda: clock.now))

    def take_time(total: Tensor, n: int) -> Tensor:
        # The first round of each is slow, as first calls are: the second counts.
        clock.now += (bf16 if torch.is_autocast_enabled("cpu") else fp32) * (100 if n <= 2 else 1)
        return total

    task = Around(translation(), loss=take_time)
    choice = choose(new_network(task), task.collate([0, 1]), KNOWN, task)
    assert choice.arithmetic.precision == wanted
    assert task.n_losses == 4
    assert f"{wanted} 1000 ms" in choice.why


def test_a_faster_one_with_another_loss_is_not_trusted(monkeypatch: pytest.MonkeyPatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(performance, "time", SimpleNamespace(perf_counter=lambda: clock.now))

    def spoil(total: Tensor, _: int) -> Tensor:
        is_bf16 = torch.is_autocast_enabled("cpu")
        clock.now += 1.0 if is_bf16 else 9.0
        return total * 1.05 if is_bf16 else total

    task = Around(translation(), loss=spoil)
    choice = choose(new_network(task), task.collate([0, 1]), KNOWN, task)
    assert choice.arithmetic == Arithmetic("fp32")
    assert "bf16 gives another loss" in choice.why


def test_the_second_start_tries_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv(tuning_cache.FILE, str(tmp_path / "probes.json"))
    task = Around(translation())
    network = new_network(task)

    def n_tried(batch: list[int], config: Training = AUTO) -> int:
        before = task.n_losses
        choices.append(choose(network, task.collate(batch), config, task))
        return task.n_losses - before

    choices: list[PrecisionChoice] = []
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
