from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from clearhead.errors import UserError
from clearhead.recipe.training import Training
from clearhead.training import machine
from clearhead.training import train as loop
from clearhead.training.machine import precision_for, prepare_machine
from tests.training.tiny import Around, finish, new_network, new_run, state, translation

AUTO = Training(steps=1)


def test_precision_asked_for_is_taken_untried():
    task = Around(translation())
    for precision in ("fp32", "bf16"):
        batch, config = task.collate([0, 1]), Training(steps=1, precision=precision)
        assert precision_for(new_network(task), batch, config, task) == precision
    assert task.n_losses == 0


def test_trying_precisions_leaves_no_trace():
    task = translation()
    run = new_run(task)
    before, random = state(run), torch.get_rng_state()
    assert precision_for(run.network, task.collate([0, 1, 2]), AUTO, task) in {"fp32", "bf16"}
    assert state(run) == before
    assert torch.equal(torch.get_rng_state(), random)
    assert all(p.grad is None for p in run.network.parameters())


def test_a_run_that_tried_precisions_is_the_one_that_did_not(monkeypatch: pytest.MonkeyPatch):
    wanted = finish(new_run(translation()))
    tried: list[str] = []

    def try_and_take_fp32(*arguments):
        tried.append(precision_for(*arguments))
        return "fp32"

    monkeypatch.setattr(loop, "precision_for", try_and_take_fp32)
    assert finish(new_run(translation(), precision="auto")) == wanted
    assert len(tried) == 1


@pytest.mark.parametrize(("fp32", "bf16", "wanted"), [(1.0, 2.0, "fp32"), (2.0, 1.0, "bf16")])
def test_the_faster_precision_is_taken(monkeypatch: pytest.MonkeyPatch, fp32: float, bf16: float, wanted: str):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(machine, "time", SimpleNamespace(perf_counter=lambda: clock.now))

    def take_time(total: Tensor, n: int) -> Tensor:
        # The first round of each is slow, as first calls are: the second counts.
        clock.now += (bf16 if torch.is_autocast_enabled("cpu") else fp32) * (100 if n <= 2 else 1)
        return total

    task = Around(translation(), loss=take_time)
    assert precision_for(new_network(task), task.collate([0, 1]), AUTO, task) == wanted
    assert task.n_losses == 4


def test_a_faster_precision_with_another_loss_is_not_trusted(monkeypatch: pytest.MonkeyPatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(machine, "time", SimpleNamespace(perf_counter=lambda: clock.now))

    def spoil(total: Tensor, _: int) -> Tensor:
        is_bf16 = torch.is_autocast_enabled("cpu")
        clock.now += 1.0 if is_bf16 else 9.0
        return total * 1.05 if is_bf16 else total

    task = Around(translation(), loss=spoil)
    assert precision_for(new_network(task), task.collate([0, 1]), AUTO, task) == "fp32"


def test_device_and_threads():
    before = torch.get_num_threads()
    try:
        assert prepare_machine(Training(device="cpu", threads=2)) == torch.device("cpu")
        assert torch.get_num_threads() == 2
        assert prepare_machine(Training(device="cpu")) == torch.device("cpu")
        assert torch.get_num_threads() == 2, "None leaves them"
    finally:
        torch.set_num_threads(before)


def test_a_device_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert prepare_machine(Training()) == torch.device("cpu")
    for device in ("cuda", "mps"):
        with pytest.raises(UserError, match=f"device={device}.*try"):
            prepare_machine(Training(device=device))
