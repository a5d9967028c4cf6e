"""Runs that train adapters on a checkpoint: what changes, what is kept, what resumes, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.api import load
from clearhead.cli import main
from clearhead.errors import UserError
from clearhead.model.adapter import Adapter, adapters
from clearhead.model.fast.grouped import GroupedLinear
from clearhead.model.linear import LinearMap
from clearhead.recipe import merge
from clearhead.runs import resume, start
from clearhead.storage.tensors import model_tensors
from clearhead.tasks.registry import validate
from clearhead.training.consumers import ProgressBar
from clearhead.training.events import Started
from clearhead.training.run import Run
from clearhead.training.train import train
from tests.training.tiny import SMALL, drive, losses, state, tables, write_pairs

LORA = {"rank": 2, "targets": ["q", "cross.v", "feedforward"], "dropout": 0.1}


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


def adapted(adapter: dict[str, Any], **training: Any) -> dict[str, Any]:
    """A translator that starts from the folder `base`."""
    model = {"start": str(Path.cwd() / "base"), "stacks": {"dropout": SMALL["dropout"]}}
    return tables("base", model=model, adapter=adapter, training={"evaluate_every": 2, **training})


def begun(adapter: dict[str, Any], out: str, **training: Any) -> Run:
    return start(validate(adapted(adapter, **training), where="x"), Path(out))[0]


@pytest.mark.parametrize(
    ("more", "training"),
    [
        pytest.param({}, {}, marks=pytest.mark.slow),
        ({"kind": "dora", "bits": 8}, {"ema": 0.5}),
        pytest.param({"bits": 4, "rslora": True}, {"packed": False}, marks=pytest.mark.slow),
    ],
    ids=["lora", "dora over int8", "lora over int4"],
)
def test_only_adapters_learn_and_a_resumed_run_is_the_same(more: dict[str, Any], training: dict[str, Any]):
    adapter = LORA | more
    run = begun(adapter, "whole", **training)
    before = {name: tensor.clone() for name, tensor in model_tensors(run.network).items()}
    whole = losses(events := drive(run))
    after = model_tensors(run.network)
    learnt = {name for name in before if not torch.equal(before[name], after[name])}
    parts = {name: dict(one.named_parameters(recurse=False)) for name, one in adapters(run.network)}
    assert learnt == {f"{name}.{part}" for name, own in parts.items() for part in own if part != "bias"}
    began = next(event for event in events if isinstance(event, Started))
    assert began.n_trained == sum(before[name].numel() for name in learnt)
    kept = [name for name in run.optimizer.state_tensors() if name.endswith(".exp_avg")]
    assert {name.split(".", 1)[1].removesuffix(".exp_avg") for name in kept} == learnt
    # The same from the middle.
    list(train(begun(adapter, "part", **{**training, "steps": 2})))
    again, _ = resume(Path("part"), changes={"steps": 4})
    assert losses(drive(again)) == {step: loss for step, loss in whole.items() if step > 2}
    assert state(again) == state(run)
    # The checkpoint opens with its adapters, and gives what the run's own network gives.
    model = load("whole")
    tokens = model.inputs("one two", "eins")
    assert sum(isinstance(module, Adapter) for module in model.network.modules()) == len(list(adapters(run.network)))
    if run.progress.best_step == 4:
        assert torch.equal(model.network(*tokens), run.model.eval()(*tokens))
    torch.testing.assert_close(model.merge().network(*tokens), model.network(*tokens), atol=1e-5, rtol=1e-5)
    assert any(isinstance(module, GroupedLinear) for module in model.network.modules()) == ("bits" in adapter)


def test_the_bar_says_how_many_weights_are_trained(capsys):
    run = begun({"rank": 1, "targets": ["encoder.blocks.0.attn.q"]}, "run")
    ProgressBar()(next(iter(train(run))))
    n = sum(p.numel() for p in run.network.parameters())
    assert f"{n:,} parameters, 32 of them trained ({32 / n:.2%}), fp32" in capsys.readouterr().err


def test_a_run_is_exported_and_comes_back(capsys):
    drive(begun(LORA, "run"))
    model = load("run")
    assert model.base == str(Path("base").absolute())
    tokens = model.inputs("one two", "eins")
    model.save("folder", adapter=True)
    assert torch.equal(load("folder").network(*tokens), model.network(*tokens))
    model.merge().save("merged")
    torch.testing.assert_close(load("merged").network(*tokens), model.network(*tokens), atol=1e-5, rtol=1e-5)
    # Rounded, it is the rounded sum.
    rounded = load("run", int4=True)
    assert not list(adapters(rounded.network))
    maps = {name: module for name, module in rounded.network.named_modules() if isinstance(module, LinearMap)}
    names = {name for name, module in maps.items() if module.rounded == "int4"}
    assert "encoder.blocks.0.attn.q" in names
    # A run goes on from the sum of both.
    again = start(validate(merge(adapted(LORA), {"model": {"start": "run"}}), where="x"), Path("second"))[0]
    torch.testing.assert_close(again.network.eval()(*tokens), model.network(*tokens), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("adapter", "message"),
    [
        ({"targets": ["atn"]}, "adapter.targets: expected attention, feedforward, all, or a pattern of addresses such"),
        ({"rank": 0}, "x:adapter.rank: "),
        ({"bits": 5}, "x:adapter.bits: "),
    ],
)
def test_mistakes_are_found_before_training(adapter: dict[str, Any], message: str):
    with pytest.raises(UserError) as error:
        begun(adapter, "run")
    assert message in str(error.value)


def test_a_new_network_has_nothing_to_adapt(capsys):
    write_pairs(Path.cwd())
    with pytest.raises(SystemExit):
        main(["train", "translation", "--source", "a.en", "--target", "a.de", "--adapter.kind", "lora"])
    assert "adapter: expected a checkpoint to adapt, got a new network; set model.start" in capsys.readouterr().err
