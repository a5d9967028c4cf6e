"""Two processes compute what one computes. All runs of this file are made by one pair of processes, once."""

import itertools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from benchmarks import ranks as benchmark
from clearhead.api import load
from clearhead.errors import UserError
from clearhead.recipe.training import Training
from clearhead.runs import resume
from clearhead.storage import checkpoints
from clearhead.training.events import Evaluated, Event
from clearhead.training.ranks import ALONE, Ranks, joined
from clearhead.training.train import train
from tests import processes
from tests.training.tiny import begin, drive, losses, write_recipe

EXACT = 1e-5
STEPS = 4
# Every second update is saved; batches of one example leave one of two processes without a share.
SETTINGS = {"steps": STEPS, "save_every": 2, "evaluate_every": STEPS, "max_tokens": 26}
SETTINGS |= {"schedule": {"kind": "constant", "warmup": 2}, "optimizer": {"kind": "adamw", "lr": 3e-3}}
PLAIN = {"model.stacks.dropout": 0.0}
MUON = {"kind": "muon", "lr": 3e-3, "precision": "float32"}
LATER = {"training.save_in_background": True}
SHARED_HEADS = {"model.stacks.n_heads": 4, "model.stacks.n_kv_heads": 2, "model.stacks.qk_norm": True}
SHARED_HEADS |= {"model.stacks.positions": {"kind": "relative"}}
ON_DISK = {"data.storage": "disk"}
RUNS: list[dict[str, Any]] = [
    {"name": "ddp", "changes": {**PLAIN, **ON_DISK, "training.accumulate": 3}},
    {"name": "fsdp", "changes": {**PLAIN, "training.parallel": "fsdp", "training.ema": 0.9}},
    {"name": "tensor", "changes": {**PLAIN, **SHARED_HEADS, "training.tensor_parallel": 2}},
    {
        "name": "muon",
        "changes": {**PLAIN, "training.parallel": "fsdp", "training.optimizer": MUON, **LATER, "training.steps": 3},
    },
    {"name": "grown", "resume": "grown", "training": {"parallel": "fsdp"}},
    {"name": "nan", "changes": {"training.on_nan": "skip", "training.steps": 3}, "nan_in_rank_1": 2},
    {"name": "stopped", "changes": {}, "sigterm_in_rank_1": 2},
]
ALIKE = {"ddp": "accumulated", "fsdp": "mean", "tensor": "normed", "muon": "muon_alone"}
"""Runs of two processes and those of one to compare them with."""


class Made(NamedTuple):
    """The folder of all runs, what each process saw of each run of two processes, and the events of one process."""

    folder: Path
    results: dict[str, list[dict[str, Any]]]
    alone: dict[str, list[Event]]


def of_one(entry: dict[str, Any]) -> list[tuple[str, Any]]:
    """What differs from the recipe but for the processes."""
    return [(k, v) for k, v in entry["changes"].items() if k not in ("training.parallel", "training.tensor_parallel")]


def rewound(folder: Path, step: int) -> None:
    for path in folder.glob("step-*"):
        if checkpoints.step_of(path) > step:
            checkpoints.discard(path)


@pytest.fixture(scope="module", autouse=True)
def _caches(tmp_path_factory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("caches")))
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Made:
    folder = tmp_path_factory.mktemp("ranks")
    recipe = write_recipe(folder, **SETTINGS)
    alone = {entry["name"]: drive(begin(recipe, folder / ALIKE[entry["name"]], *of_one(entry))) for entry in RUNS[:4]}
    alone["grown"] = drive(begin(recipe, folder / "grown", *PLAIN.items(), *ON_DISK.items()))
    rewound(folder / "grown", 2)
    (folder / "plan.json").write_text(json.dumps(RUNS), encoding="utf-8")
    command = [sys.executable, "-m", "tests.training.of_ranks", str(folder), "2"]
    done = processes.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
    assert done.returncode == 0
    return Made(folder, json.loads((folder / "results.json").read_text(encoding="utf-8")), alone)


def floats(found: dict[int, str]) -> dict[int, float]:
    return {step: float.fromhex(loss) for step, loss in found.items()}


def test_losses_norms_and_scores_are_those_of_one_process(made):
    for name in ALIKE:
        events = made.alone[name]
        wanted, (first, second) = floats(losses(events)), made.results[name]
        assert len(wanted) >= 3, name
        assert list(first["losses"].values()) == pytest.approx(list(wanted.values()), rel=EXACT), name
        norms = [event.grad_norm for event in events if hasattr(event, "grad_norm")]
        assert list(first["norms"].values()) == pytest.approx(norms, rel=1e-4), name
        scores = [score.value for event in events if isinstance(event, Evaluated) for score in event.evaluation.scores]
        assert [s["value"] for all_scores in first["evaluated"].values() for s in all_scores] == pytest.approx(scores)
        assert {**second, "held": 0} == {**first, "held": 0}, "both processes saw the same"


def test_each_process_holds_half(made):
    folder, results, _ = made
    whole = sum(p.numel() for p in begin(folder / "tiny.toml", folder / "counted").network.parameters())
    assert results["ddp"][0]["held"] == whole
    for held in (results[name][i]["held"] for name in ("fsdp", "muon") for i in (0, 1)):
        assert 0.4 * whole < held < 0.6 * whole


@pytest.mark.parametrize("name", ["fsdp", "tensor", "muon"])
def test_a_checkpoint_in_shares_is_a_model_and_goes_on_alone(made, name: str):
    folder, results, _ = made
    reference = load(folder / ALIKE[name])
    model = load(folder / name)
    theirs = dict(reference.network.named_parameters())
    for path, parameter in model.network.named_parameters():
        if not path.endswith(("k.bias", "k_norm.bias")):  # Their gradients are 0, and what Adam makes of it is noise.
            torch.testing.assert_close(parameter, theirs[path], rtol=1e-4, atol=1e-5)
    last = checkpoints.latest(folder / name)
    assert last is not None
    assert {path.name for path in last.glob("model*")} == {
        *("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json")
    }
    rewound(folder / name, 2)
    run, _ = resume(folder / name, changes={"tensor_parallel": 1})
    found = floats(losses(train(run)))
    wanted = {int(step): loss for step, loss in results[name][0]["losses"].items() if int(step) > 2}
    assert found == pytest.approx(wanted, rel=EXACT)


def test_a_run_of_one_goes_on_in_two(made):
    wanted = {step: loss for step, loss in floats(losses(made.alone["grown"])).items() if step > 2}
    assert {int(k): v for k, v in made.results["grown"][0]["losses"].items()} == pytest.approx(wanted, rel=EXACT)


def test_what_one_process_meets_all_agree_about(made):
    results = made.results
    assert [seen["skipped"] for seen in results["nan"]] == [[2], [2]]
    assert [seen["ended"] for seen in results["stopped"]] == [[2, "stopped", 15]] * 2


# --- one process -------------------------------------------------------------------------------------------------


def test_every_example_is_one_process_s():
    batch = [5, 3, 8, 1, 9, 2, 7]
    shares = [list(Ranks(rank=rank, size=3).share(batch)) for rank in range(3)]
    assert sorted(itertools.chain(*shares)) == sorted(batch)
    assert {len(share) for share in shares} == {2, 3}
    assert [list(Ranks(rank=rank, size=4, tensor_size=2).share(batch)) for rank in range(4)] == [
        *([5, 8, 9, 7], [5, 8, 9, 7], [3, 1, 2], [3, 1, 2])
    ]
    assert [Ranks(rank=rank, size=4, tensor_size=2).counts for rank in range(4)] == [True, False, True, False]


def test_alone_nothing_is_exchanged(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with joined() as ranks:
        assert ranks is ALONE
    assert (ALONE.sum(2.5), ALONE.first("a"), ALONE.everyone(1), ALONE.together(lambda: 3)) == (2.5, "a", [1], 3)
    assert ALONE.agree(1.5, None, False) == (1.5, None, False)
    assert not torch.distributed.is_initialized()


def test_a_grid_that_cannot_be():
    assert ALONE.arranged(Training(parallel="fsdp")) is ALONE
    with pytest.raises(UserError, match=r"tensor_parallel: expected a divisor of the number of processes, 1, got 2"):
        ALONE.arranged(Training(tensor_parallel=2))


@pytest.mark.slow
def test_all_that_is_promised_of_several_processes(tmp_path):
    """Fifty updates of each kind, other numbers of processes, and a process killed: the benchmark's rows."""
    recipe = benchmark.write_recipe(tmp_path, 50)
    rows = [*benchmark.compare(tmp_path, recipe), *benchmark.kill(tmp_path, recipe)]
    assert [str(row) for row in rows if not row.is_kept] == []
