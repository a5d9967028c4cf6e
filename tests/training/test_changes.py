"""What a run may change when it goes on. The command is tried in tests/test_cli.py."""

from pathlib import Path
from typing import Any

import pytest

from clearhead.errors import UserError
from clearhead.recipe.training import AdamW, Muon, Training
from clearhead.runs import differences, resume
from clearhead.storage import checkpoints
from clearhead.training.metrics_log import MetricsLog, read_metrics
from clearhead.training.run_folder import RECIPE, recipe_in
from clearhead.training.train import train
from tests.training.tiny import begin, drive, losses, write_recipe


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run that has made its four steps."""
    drive(begin(write_recipe(tmp_path, steps=4, evaluate_every=100), tmp_path / "run"))
    return tmp_path / "run"


def recorded(run: Path) -> Any:
    return recipe_in(run / RECIPE)["training"]


def test_differences_name_each_field():
    before, after = (Training(steps=steps, optimizer=AdamW(lr=lr)) for steps, lr in ((4, 1e-3), (8, 1e-4)))
    assert differences(before, after) == {"steps": [4, 8], "optimizer.lr": [1e-3, 1e-4]}
    assert differences(before, before) == {}
    kinds = differences(Training(), Training(optimizer=Muon()))
    assert kinds["optimizer.kind"] == ["adamw", "muon"]
    assert kinds["optimizer.momentum"] == [None, 0.95]


def test_a_run_goes_on_beyond_its_limit(run: Path):
    """Exactly as one that had the later limit from the beginning, where no schedule tells them apart."""
    again, _ = resume(run, changes={"steps": 6, "optimizer": {"lr": 2e-3}})
    log = MetricsLog(run)
    for event in train(again):
        log(event)
    started = read_metrics(run)[0]
    assert started["changes"] == {"steps": [4, 6], "optimizer.lr": [1e-3, 2e-3]}
    newest = checkpoints.latest(run)
    assert newest is not None
    assert newest.name == "step-00000006"
    saved: Any = checkpoints.load(newest).json[RECIPE]
    assert saved["training"] == recorded(run)
    assert (recorded(run)["steps"], recorded(run)["optimizer"]["lr"]) == (6, 2e-3)


def test_a_longer_run_has_the_losses_of_one_that_was_long_from_the_start(run: Path, tmp_path: Path):
    long = losses(drive(begin(write_recipe(tmp_path, steps=6, evaluate_every=100), tmp_path / "long")))
    again, _ = resume(run, changes={"steps": 6})
    assert losses(train(again)) == {step: loss for step, loss in long.items() if step > 4}


def test_a_change_outlives_a_crash_before_the_next_checkpoint(run: Path):
    resume(run, changes={"steps": 6})
    again, _ = resume(run)
    assert again.config.steps == 6
    assert again.changes == {"steps": [4, 6]}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"steps": 3}, r"expected limits beyond step 4, .* got training.steps=3; give a later one"),
        ({"epochs": 0.1}, r"got training.steps=4 and training.epochs=0.1"),
        ({"optimizer": {"kind": "muon"}}, r"--training.optimizer.kind: expected adamw, .* got muon; leave it out"),
        ({"ema": 0.9}, r"--training.ema: expected none, .* got 0.9; .* clearhead train and --model.start"),
        ({"blend": 0.5}, r"--training.blend: expected none, .* got 0.5"),
        ({"weights": "bf16", "precision": "bf16"}, r"--training.weights: expected fp32"),
        ({"stepz": 3}, r"recipe.json:training.stepz: no such field; did you mean steps\?"),
    ],
)
def test_a_change_that_cannot_be_is_one_line(run: Path, changes: dict[str, Any], says: str):
    before = (run / RECIPE).read_bytes()
    with pytest.raises(UserError, match=says):
        resume(run, changes=changes)
    assert (run / RECIPE).read_bytes() == before


@pytest.mark.parametrize(
    ("field", "value", "of_the_run"), [("precision", "bf16", "precision"), ("matmul_precision", "high", "matmul")]
)
def test_other_arithmetic_is_chosen_again(run: Path, field: str, value: str, of_the_run: str):
    again, _ = resume(run, changes={"steps": 5, field: value})
    drive(again)
    assert getattr(again.progress, of_the_run) == value
